"""Every lower bound, by id: the library's own and the papers'."""

from lastiterate.bounds.bound import LowerBound
from lastiterate.bounds.published import PAPERS
from lastiterate.lower_bounds import drifting, drifting_walk, last_step, quadratics

LOWER_BOUNDS: dict[str, LowerBound] = {
    bound.id: bound
    for module in (quadratics, drifting, last_step, drifting_walk, *PAPERS)
    for bound in getattr(module, "LOWER_BOUNDS", ())
}
