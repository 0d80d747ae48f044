"""Every upper bound, by id; approximations apart, since they are other things."""

from lastiterate.bounds.bound import Approximation, Bound
from lastiterate.bounds.composition.fixed_order_composition import FIXED_ORDER_COMPOSITION
from lastiterate.bounds.composition.sampled_composition import SAMPLED_COMPOSITION
from lastiterate.bounds.fixed_order.convex import BOUNDED_DOMAIN, CONTRACTIVE
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.bounds.published import PAPERS
from lastiterate.bounds.shuffling.balls_and_bins import BALLS_AND_BINS
from lastiterate.bounds.shuffling.bin_transport import HIDDEN_BINS
from lastiterate.bounds.shuffling.joint_bin_transport import HIDDEN_BINS_TOGETHER
from lastiterate.bounds.shuffling.joint_position_transport import HIDDEN_PLACE_TOGETHER
from lastiterate.bounds.shuffling.position_average import SHUFFLED_EACH_EPOCH, SHUFFLED_ONCE
from lastiterate.bounds.shuffling.position_transport import HIDDEN_PLACE
from lastiterate.bounds.subsampling.amplified_tail import SAMPLED_AMPLIFIED_TAIL
from lastiterate.bounds.subsampling.participation_mixture import POISSON, SAMPLED
from lastiterate.bounds.subsampling.poisson import HIDDEN_PARTICIPATIONS
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
        HIDDEN_PLACE,
        HIDDEN_PLACE_TOGETHER,
        BALLS_AND_BINS,
        HIDDEN_BINS,
        HIDDEN_BINS_TOGETHER,
        SAMPLED,
        SAMPLED_AMPLIFIED_TAIL,
        POISSON,
        HIDDEN_PARTICIPATIONS,
        SAMPLED_COMPOSITION,
        *(bound for paper in PAPERS for bound in paper.BOUNDS),
    )
}
APPROXIMATIONS: dict[str, Approximation] = {
    one.id: one for paper in PAPERS for one in getattr(paper, "APPROXIMATIONS", ())
}
# Whose whole curves take no time worth telling, so that they are used beside other releases.
QUICKLY_COMPOSED = [
    "composition",
    "fixed-order",
    "random-order/shuffled-once",
    "random-order/shuffled-each-epoch",
    "random-order/hidden-place",
    "random-order/balls-and-bins",
    "random-order/balls-and-bins-hidden",
]
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
