"""Every upper bound, by id, and first those that are the least of several stages.

Approximations are listed apart, since they are other things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lastiterate.bounds import published
from lastiterate.bounds.balanced import BALANCED, BALANCED_COMPOSITION
from lastiterate.bounds.balls_and_bins.composition import BALLS_AND_BINS_COMPOSITION
from lastiterate.bounds.balls_and_bins.mixtures import (
    BIN_AVERAGE,
    BIN_EARLY_MIXTURE,
    BIN_MIXTURE,
    BIN_WINDOWED_MIXTURE,
)
from lastiterate.bounds.bound import (
    DASHES,
    GREEN,
    VERMILLION,
    Approximation,
    Bound,
    Citation,
    LineStyle,
    StagedBound,
    least_of,
)
from lastiterate.bounds.composition import FIXED_ORDER_COMPOSITION, SAMPLED_COMPOSITION
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.bounds.fixed_order.short_steps import SHORT_STEPS_FIXED_ORDER
from lastiterate.bounds.momentum import MOMENTUM, MOMENTUM_TRANSPORT
from lastiterate.bounds.shuffling.average import (
    AVERAGE_EACH_EPOCH,
    AVERAGE_ONCE,
    LAST_EPOCHS_AVERAGE,
)
from lastiterate.bounds.shuffling.early_transport import EARLY_TRANSPORT
from lastiterate.bounds.shuffling.transport import JOINT_TRANSPORT
from lastiterate.bounds.subsampling.amplified_tail import SAMPLED_AMPLIFIED_TAIL
from lastiterate.bounds.subsampling.average import POISSON_AVERAGE, SAMPLED_AVERAGE
from lastiterate.bounds.subsampling.poisson import HIDDEN_PARTICIPATIONS
from lastiterate.bounds.subsampling.window_average import POISSON_WINDOW, SAMPLED_WINDOW
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun

PUBLISHED = "published"  # the family that `account` uses only when asked

Chosen = str | Bound | Sequence[str | Bound]
"""The id of a bound or of a family, a bound of the catalogue, or several of these."""


def shuffled(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average over secret positions and of transport between positions.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l positions of an epoch,
    :math:`\mu_j` the value of `fixed-order/convex` for position j.  Or less, with transport of mass
    from late positions to early ones (`random-order/shuffled/joint-transport`), in short steps with
    noise before participations (`random-order/shuffled/early-transport`).

    **Holds when.** the order is drawn uniformly, in secret, once or before every epoch, and stays
    secret.  The average needs a fixed-order bound; transport needs convex, smooth losses, steps of
    at most 2/smoothness and a constant schedule.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches.

    **Source.** This library (`docs/tightness.md#transport`); Bok, Su and Altschuler 2024, Theorem
    C.3; Ye and Shokri 2022, Lemma 4.1; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return SHUFFLED.guarantee(run)


SHUFFLED: StagedBound = least_of(
    EARLY_TRANSPORT,
    JOINT_TRANSPORT,
    AVERAGE_ONCE,
    AVERAGE_EACH_EPOCH,
    LAST_EPOCHS_AVERAGE,
    MOMENTUM_TRANSPORT,
    id="random-order/shuffled",
    gives="an average over the example's secret position in a shuffled order, which stays hidden",
    source=Citation(
        "lastiterate",
        2026,
        "Hidden positions of shuffled runs",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=shuffled,
    charges="averages over the example's secret position, which stays hidden",
    line_style=LineStyle(GREEN),
)


def balls_and_bins(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average and of mixtures over the batch that an example draws.

    **Bound.** :math:`\frac1l \sum_j \delta_{\mu_j}(\varepsilon)` over the l batches of an epoch,
    given that no batch is too large.  Or the divergence of :math:`E_j N(a_j, I)` and
    :math:`E_j N(-a_j, I)`, or N(0, I) if the example is left out, with the shifts :math:`a_j` of
    position j.

    **Holds when.** every example draws its batch independently and in secret; losses are convex and
    smooth, and no step exceeds 2/smoothness.  Mixtures need bounded gradients.

    **Tight.** To a few per cent of an exactly solved instance.

    **Source.** This library (`docs/tightness.md#balls-and-bins`); Bok, Su and Altschuler 2024,
    Theorem C.3; Kahane 1985.

    **Computed as** the least of its stages, each rounded up.
    """
    return BALLS_AND_BINS.guarantee(run)


BALLS_AND_BINS: StagedBound = least_of(
    BIN_EARLY_MIXTURE,
    BIN_WINDOWED_MIXTURE,
    BIN_MIXTURE,
    BIN_AVERAGE,
    id="random-order/balls-and-bins",
    gives="an average over the secret batch that an example has drawn on its own",
    source=Citation(
        "lastiterate",
        2026,
        "Mixtures over hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=balls_and_bins,
    charges="averages over the batch that the example has drawn in secret",
    line_style=LineStyle(GREEN, DASHES[1]),
)


def sampled(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average over secret participations and of transport between them.

    **Bound.** :math:`E_V\,\delta_{\mu(V)}(\varepsilon)` over the steps V in which the example takes
    part, :math:`\mu(V)` the value of `fixed-order/convex`.  Or less, if V stays hidden and the last
    steps are amplified by sampling (`random-order/sampled/amplified-tail`).

    **Holds when.** every batch is drawn uniformly without replacement, in secret; losses are convex
    and smooth, no step exceeds 2/smoothness, gradients are not changed by norm clipping; step size
    and noise are constant.

    **Tight.** To some ten per cent if contraction is weak.

    **Source.** This library (`docs/tightness.md#sampled-batches`); Bok, Su and Altschuler 2024,
    Theorem C.3; Abramson and Pitman 2011; Harris 1960.

    **Computed as** the least of its stages, each rounded up.
    """
    return SAMPLED.guarantee(run)


SAMPLED: StagedBound = least_of(
    SAMPLED_AMPLIFIED_TAIL,
    SAMPLED_AVERAGE,
    SAMPLED_WINDOW,
    id="random-order/sampled",
    gives="an average over the steps in which a secretly sampled example takes part",
    source=SAMPLED_AMPLIFIED_TAIL.source,
    evaluate=sampled,
    charges="averages over the steps in which the secretly drawn example takes part",
    line_style=LineStyle(VERMILLION),
)


def poisson(run: TrainingRun) -> PrivacyProfile:
    r"""The least of an average and of mixtures over secret participations.

    **Bound.** :math:`E_V\,\delta_{\mu(V)}(\varepsilon)` given that no batch is too large, or a
    product of few mixtures of Gaussians, each over a hidden sum of participations.

    **Holds when.** every step includes every example independently and in secret; losses are convex
    and smooth, no step exceeds 2/smoothness, gradients are not changed by norm clipping; step size
    and noise are constant.

    **Tight.** Within a few per cent of the exact value for linear losses if contraction is weak.

    **Source.** This library (`docs/tightness.md#poisson-batches`); Kahane 1985; Bok, Su and
    Altschuler 2024, Theorem C.3.

    **Computed as** the least of its stages, each rounded up.
    """
    return POISSON.guarantee(run)


POISSON: StagedBound = least_of(
    HIDDEN_PARTICIPATIONS,
    POISSON_AVERAGE,
    POISSON_WINDOW,
    id="random-order/poisson",
    gives="an average over secret participations in batches of random size",
    source=HIDDEN_PARTICIPATIONS.source,
    evaluate=poisson,
    charges="averages over the steps in which the secretly drawn example takes part",
    line_style=LineStyle(VERMILLION, DASHES[2]),
)

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

_OWN_IDS = [id_ for id_ in CATALOGUE if not id_.startswith(PUBLISHED)]

_KNOWN_IDS = (
    f"one of {', '.join(_OWN_IDS)}, of the families {', '.join(_FAMILIES)}, "
    "or an id in li.CATALOGUE"
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
