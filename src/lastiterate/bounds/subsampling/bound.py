"""The bounds for batches drawn anew that the catalogue lists, each the least of its stages."""

from lastiterate.bounds.bound import DASHES, VERMILLION, LineStyle, StagedBound, least_of
from lastiterate.bounds.subsampling.amplified_tail import SAMPLED_AMPLIFIED_TAIL
from lastiterate.bounds.subsampling.average import POISSON_AVERAGE, SAMPLED_AVERAGE
from lastiterate.bounds.subsampling.poisson import HIDDEN_PARTICIPATIONS
from lastiterate.bounds.subsampling.window_average import POISSON_WINDOW, SAMPLED_WINDOW
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun


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
