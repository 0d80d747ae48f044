"""Every lower bound, by id: the library's own and the papers'."""

from lastiterate.bounds.bound import LowerBound
from lastiterate.bounds.published import lower_bounds
from lastiterate.instances import drifting, quadratics

LOWER_BOUNDS: dict[str, LowerBound] = {
    bound.id: bound for bound in (*quadratics.BOUNDS, *drifting.BOUNDS, *lower_bounds.BOUNDS)
}
