"""The last iterate of shuffled subgradient steps on convex losses that need not be smooth."""

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Hypothesis
from lastiterate.bounds.fixed_order.nonsmooth import MOST_POSITIONS, NON_SMOOTH, position_mus
from lastiterate.bounds.quantities import widened
from lastiterate.bounds.shuffling.position_average import MIXTURE
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.run.batch_rules.rules import Resampling, rules
from lastiterate.run.training_run import TrainingRun


def non_smooth_average(run: TrainingRun) -> GaussianMixtureProfile:
    r"""A mixture over secret positions, for convex losses without smoothness.

    **Bound.** :math:`\delta(\varepsilon) = E\,\delta_{\mu(j)}(\varepsilon)` over the position j in
    an order drawn once, or over independent positions in the last epochs, with :math:`\mu` that of
    `fixed-order/non-smooth`.

    **Holds when.** the examples are shuffled uniformly and in secret, once or before every epoch,
    and `fixed-order/non-smooth` covers the run.

    **Tight.** The exact average of what holds given the positions.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma 4.1.

    **Computed as** an average of Gaussian curves, each rounded up.
    """
    found = position_mus(run)
    weights = [weight for weight, _ in found]
    unseen = max(0.0, 1.0 - sum(weights))
    return GaussianMixtureProfile([*weights, unseen], [*(widened(mu) for _, mu in found), 0.0])


def _too_many(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if length <= MOST_POSITIONS else f"{length} batches"


NON_SMOOTH_AVERAGE = Bound(
    id="random-order/shuffled/average-non-smooth",
    gives="the average over secret positions, for convex losses without smoothness",
    covers=rules(Resampling.ONCE, Resampling.EACH_EPOCH, exact_size=True),
    needs=(
        conditions.SECRET_ORDER,
        *NON_SMOOTH.needs[1:],
        Hypothesis(f"at most {MOST_POSITIONS} batches an epoch", _too_many, "see fixed-order"),
    ),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=non_smooth_average,
    rests_on=(NON_SMOOTH,),
    charges="averages over the example's secret positions",
)
