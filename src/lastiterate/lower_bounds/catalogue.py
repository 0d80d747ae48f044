"""Every lower bound, by id: the library's own and the papers'."""

from lastiterate.bounds import published
from lastiterate.bounds.bound import LowerBound
from lastiterate.lower_bounds import (
    curved_interval,
    drifting,
    drifting_walk,
    last_step,
    late_curvature,
    momentum_quadratics,
    quadratics,
)

LOWER_BOUNDS: dict[str, LowerBound] = {
    bound.id: bound
    for module in (
        quadratics,
        momentum_quadratics,
        drifting,
        late_curvature,
        curved_interval,
        last_step,
        drifting_walk,
        published,
    )
    for bound in module.LOWER_BOUNDS
}
