"""Every bound, by id; lower bounds and approximations apart, since they are other things."""

from lastiterate.bounds import drifting, lower
from lastiterate.bounds.amplified_tail import POISSON_AMPLIFIED_TAIL, SAMPLED_AMPLIFIED_TAIL
from lastiterate.bounds.bound import Approximation, Bound, LowerBound
from lastiterate.bounds.composition import FIXED_ORDER_COMPOSITION
from lastiterate.bounds.expanding import NON_CONVEX
from lastiterate.bounds.fixed_order import BOUNDED_DOMAIN, CONTRACTIVE
from lastiterate.bounds.published import (
    altschuler_talwar,
    bok_su_altschuler,
    bok_su_altschuler_sampled,
    chien_li,
    chourasia_ye_shokri,
    estimates,
    lower_bounds,
    ye_shokri,
)
from lastiterate.bounds.sampled import POISSON, SAMPLED
from lastiterate.bounds.sampled_composition import SAMPLED_COMPOSITION
from lastiterate.bounds.shuffled import SHUFFLED_EACH_EPOCH, SHUFFLED_ONCE
from lastiterate.errors import InvalidParameter, InvalidType

CATALOGUE: dict[str, Bound] = {
    bound.id: bound
    for bound in (
        FIXED_ORDER_COMPOSITION,
        CONTRACTIVE,
        BOUNDED_DOMAIN,
        NON_CONVEX,
        SHUFFLED_ONCE,
        SHUFFLED_EACH_EPOCH,
        SAMPLED,
        SAMPLED_AMPLIFIED_TAIL,
        POISSON,
        POISSON_AMPLIFIED_TAIL,
        SAMPLED_COMPOSITION,
        *bok_su_altschuler.BOUNDS,
        *bok_su_altschuler_sampled.BOUNDS,
        *altschuler_talwar.BOUNDS,
        *ye_shokri.BOUNDS,
        *chien_li.BOUNDS,
        *chourasia_ye_shokri.BOUNDS,
    )
}
LOWER_BOUNDS: dict[str, LowerBound] = {
    bound.id: bound for bound in (*lower.BOUNDS, *drifting.BOUNDS, *lower_bounds.BOUNDS)
}
APPROXIMATIONS: dict[str, Approximation] = {one.id: one for one in estimates.APPROXIMATIONS}
PUBLISHED = "published"  # the family that `account` uses only when asked


_FAMILIES = dict.fromkeys(id_.split("/")[0] for id_ in CATALOGUE)
_OWN = [id_ for id_ in CATALOGUE if not id_.startswith(PUBLISHED)]
_KNOWN = (
    f"one of {', '.join(_OWN)}, of the families {', '.join(_FAMILIES)}, or an id in li.CATALOGUE"
)


def select(bounds: str | list[str] | tuple[str, ...] | None) -> list[Bound]:
    """The bounds with these ids, or under these families ("fixed-order"); None is all."""
    if bounds is None:
        return list(CATALOGUE.values())
    wanted = [bounds] if isinstance(bounds, str) else bounds
    if not isinstance(wanted, (list, tuple)) or not all(isinstance(id_, str) for id_ in wanted):
        raise InvalidType("bounds", bounds, must_be="an id or a list of ids")
    chosen: dict[str, Bound] = {}
    for id_ in wanted:
        found = {
            key: bound
            for key, bound in CATALOGUE.items()
            if key == id_ or key.startswith(f"{id_.rstrip('/')}/")
        }
        if not found:
            raise InvalidParameter("bounds", id_, must_be=_KNOWN)
        chosen |= found
    if not chosen:
        raise InvalidParameter("bounds", bounds, must_be="at least " + _KNOWN)
    return list(chosen.values())
