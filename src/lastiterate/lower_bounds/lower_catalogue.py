"""Every lower bound, by id: the library's own and the papers'."""

from lastiterate.bounds.bound import LowerBound
from lastiterate.bounds.published import PAPERS
from lastiterate.lower_bounds import drifting, last_step, quadratics

LOWER_BOUNDS: dict[str, LowerBound] = {
    bound.id: bound
    for module in (quadratics, drifting, last_step, *PAPERS)
    for bound in getattr(module, "LOWER_BOUNDS", ())
}
