"""Every upper bound, by id; approximations apart, since they are other things."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lastiterate.bounds import published
from lastiterate.bounds.balanced import BALANCED, BALANCED_COMPOSITION
from lastiterate.bounds.balls_and_bins.composition import BALLS_AND_BINS_COMPOSITION
from lastiterate.bounds.bound import Approximation, Bound, StagedBound
from lastiterate.bounds.composition import FIXED_ORDER_COMPOSITION, SAMPLED_COMPOSITION
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.bounds.fixed_order.short_steps import SHORT_STEPS_FIXED_ORDER
from lastiterate.bounds.momentum import MOMENTUM
from lastiterate.bounds.shuffling.bound import BALLS_AND_BINS, SHUFFLED
from lastiterate.bounds.subsampling.bound import POISSON, SAMPLED
from lastiterate.errors import InvalidParameter, InvalidType

PUBLISHED = "published"  # the family that `account` uses only when asked

Chosen = str | Bound | Sequence[str | Bound]
"""The id of a bound or of a family, a bound of the catalogue, or several of these."""

CATALOGUE: Mapping[str, Bound] = MappingProxyType(
    {
        bound.id: bound
        for bound in (
            FIXED_ORDER_COMPOSITION,
            SAMPLED_COMPOSITION,
            BALLS_AND_BINS_COMPOSITION,
            BALANCED_COMPOSITION,
            CONVEX_FIXED_ORDER,
            SHORT_STEPS_FIXED_ORDER,
            NON_CONVEX,
            MOMENTUM,
            SHUFFLED,
            BALLS_AND_BINS,
            BALANCED,
            SAMPLED,
            POISSON,
            *(bound for paper in published.PAPERS for bound in paper.BOUNDS),
        )
    }
)

# The bounds and, by ids of their own, the stages of those that have some.
RECORDS: Mapping[str, Bound] = MappingProxyType(
    {
        **CATALOGUE,
        **{
            stage.id: stage
            for bound in CATALOGUE.values()
            if isinstance(bound, StagedBound)
            for stage in bound.stages
        },
    }
)
APPROXIMATIONS: dict[str, Approximation] = {one.id: one for one in published.APPROXIMATIONS}
_FAMILIES = dict.fromkeys(id_.split("/")[0] for id_ in CATALOGUE)
_OWN = [id_ for id_ in CATALOGUE if not id_.startswith(PUBLISHED)]
_KNOWN_IDS = (
    f"one of {', '.join(_OWN)}, of the families {', '.join(_FAMILIES)}, or an id in li.CATALOGUE"
)
_OWN_BOUND = (
    "of the catalogue: `account` certifies by the library's bounds alone; evaluate one of your own "
    "by its `profile(run)`, and combine it with a report yourself"
)


def select(bounds: Chosen | None, *, name: str = "bounds") -> list[Bound]:
    """The bounds with these ids, or under these families ("fixed-order"); None is all.

    `name` is what errors call the argument.
    """
    if bounds is None:
        return list(CATALOGUE.values())
    wanted = [bounds] if isinstance(bounds, (str, Bound)) else bounds
    if not isinstance(wanted, (list, tuple)) or not all(
        isinstance(one, (str, Bound)) for one in wanted
    ):
        raise InvalidType(name, bounds, must_be="an id, a bound of li.CATALOGUE, or a list of them")
    chosen: dict[str, Bound] = {}
    for one in wanted:
        id_ = one if isinstance(one, str) else one.id
        if isinstance(one, Bound) and RECORDS.get(id_) is not one:
            raise InvalidParameter(name, id_, must_be=_OWN_BOUND)
        family = f"{id_.rstrip('/')}/"
        found = {key: bound for key, bound in CATALOGUE.items() if key.startswith(family)}
        if id_ in RECORDS:
            found = {id_: RECORDS[id_]}
        if not found:
            raise InvalidParameter(name, id_, must_be=_KNOWN_IDS)
        chosen |= found
    if not chosen:
        raise InvalidParameter(name, bounds, must_be="at least " + _KNOWN_IDS)
    return list(chosen.values())


def given_order() -> list[str]:
    """The ids of the bounds and stages that hold for every order of the batches, then average."""
    return [id_ for id_, bound in RECORDS.items() if bound.given_order]
