"""The bound for shuffled runs whose secret position stays hidden: transport and joint transport.

`position_average` holds even if the position is revealed with the last iterate.  With many batches
in an epoch nearly all of its epsilon is the probability of the very last batch.  The bound here
transports mass of late positions to earlier ones.  `docs/tightness.md#transport` and
`docs/tightness.md#joint-transport` have the theorems.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate._numerics.rounding import Array, at_least, at_most
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.fixed_positions import FixedPositions
from lastiterate.bounds.shuffling.joint_transport import PositionLaws
from lastiterate.bounds.shuffling.positions import Positions, ShuffledSteps
from lastiterate.bounds.shuffling.positions_each_epoch import PositionsEachEpoch
from lastiterate.bounds.shuffling.proof_search import TransportSearch
from lastiterate.bounds.shuffling.shuffled_profile import ShuffledProfile
from lastiterate.bounds.shuffling.transport import TransportProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps

_LATE_SHARES = (0.001, 0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6)  # of positions, all tried
_LARGE_WEIGHT = 0.1  # of the last group
_FEWEST_POSITIONS = 10  # joint transport has too little to mix over with fewer
_MOST_RELEASE_NOISE = 1e9  # in units of a step's noise; more is not used
LARGEST_MU = 30.0  # above it no transport is feasible
LARGEST_NOISE_SHARE = 0.95  # of windows: the rest hides the rounding errors of a trainer


@lru_cache(maxsize=4)
def shuffled_transport(run: TrainingRun) -> TransportProfile:
    """The quick part of `shuffled_joint_transport`: late positions are transported one by one.

    The number of late positions is chosen among a few; any choice is valid.
    """
    positions = positions_of(run)
    weights, mus = positions.weights(), positions.mus()
    counts = late_counts(weights) if mus.max() < LARGEST_MU else []
    directions = [
        [positions.transport_mus(count, receiving, late) for count in counts]
        for receiving, late in sensitivity_factors(run)
    ]
    return TransportProfile(weights, mus, directions)


def shuffled_joint_transport(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a secret position with joint transport from late positions to early ones.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)`, of the
    best transport between positions (`shuffling.transport`), and of :math:`\sum_e p_e
    B_e(\alpha_e)`, with :math:`B_e(a) = E(e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} X - a)_+`
    and :math:`X = \sum_j F_j e^{\rho_j z_j - \rho_j^2/2}` over windows of the last steps, plus the
    terms of late positions that are retained or transported one by one.  The mu of the example at
    a late position t against it at a receiving position e is that of participations in the steps
    of both.

    **Holds when.** single examples are shuffled uniformly and in secret, once or before every
    epoch; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not changed
    by norm clipping; step size and noise are constant.  An example is replaced, or left out; then
    no gradient exceeds the sensitivity, so that two differ by at most twice it.  A bounded domain
    is allowed, and not used.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches and
    earlier ones left little.

    **Source.** This library (`docs/tightness.md#transport`, `docs/tightness.md#joint-transport`);
    Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** sums of Gaussian curves; and sums of log-normal variables on a grid, larger in
    convex order, and one integral by chords; rounded up.  Positions, windows and shares are
    searched for; any choice is valid, and feasibility is checked with a margin.
    """
    quick = shuffled_transport(run)
    positions = positions_of(run)
    if not (positions.mus().max() < LARGEST_MU and has_many_positions(positions)):
        return quick
    directions = [
        TransportSearch([(1.0, LawsFactory(positions, receiving, late))])
        for receiving, late in sensitivity_factors(run)
    ]
    return ShuffledProfile(quick, directions)


def positions_of(
    run: TrainingRun, short_steps: ShortSteps | None = None, earlier_factor: float = 1.0
) -> Positions:
    """The law of an example's position in this run's secret order; step and noise are constant.

    With `short_steps` earlier noise hides a participation, too.  If the order is drawn before every
    epoch, participations in earlier epochs count `earlier_factor` times.
    """
    sensitivity = float(quantities.sensitivities(run)[0])
    noise = float(quantities.noises(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASE_NOISE)
    steps = ShuffledSteps(
        gap=float(quantities.gaps(run)[0]),
        ratio=at_least(sensitivity / noise, ulps=quantities.WIDENING),
        release_in_steps=at_most(released * released, ulps=8),
        examples=run.batches.examples,
        batch_size=run.batches.batch_size,
        share=run.batches.share,
        epoch_length=run.batches.batches_per_epoch,
        steps=run.steps,
    )
    if run.batches.resampling is Resampling.ONCE:
        return FixedPositions(steps, short_steps)
    return PositionsEachEpoch(steps, short_steps, earlier_factor)


def sensitivity_factors(run: TrainingRun) -> list[tuple[float, float]]:
    """Factors of the sensitivity at receiving and at late positions, by order of the data sets.

    If an example is left out, two examples differ by twice the sensitivity, and the example and
    nothing by once.
    """
    return [(1.0, 1.0)] if run.adjacency == "replace" else [(1.0, 2.0), (2.0, 1.0)]


@dataclass(frozen=True)
class LawsFactory:
    """The `PositionLaws` for shares of positions and of noise; None if none is left to receive."""

    positions: Positions
    receiving: float
    late: float
    window_unit: float = 0.0  # steps

    def __call__(
        self, late_share: float, hidden_share: float, noise: float, first_window: float
    ) -> PositionLaws | None:
        weights = self.positions.weights()
        before = np.cumsum(weights) - weights
        count = int(np.searchsorted(before, late_share))
        hidden = max(int(np.searchsorted(before, late_share * hidden_share)), 1)
        if not hidden <= count < weights.size:
            return None
        noise_share = min(noise, LARGEST_NOISE_SHARE)
        first = max(round(first_window * self.window_unit), 1)
        return self.positions.joint_laws(
            count, hidden, noise_share, self.receiving, self.late, first
        )


def has_many_positions(positions: Positions) -> bool:
    """Whether joint transport has enough positions to mix over."""
    return positions.weights().size >= _FEWEST_POSITIONS


def late_counts(weights: Array) -> list[int]:
    """The numbers of late positions that are tried."""
    before = np.cumsum(weights) - weights
    counts = {int(np.searchsorted(before, share)) for share in _LATE_SHARES}
    if weights[-1] > _LARGE_WEIGHT:
        # In a run shorter than an epoch most examples have no position, which may receive alone.
        counts.add(weights.size - 1)
    return sorted(count for count in counts if 0 < count < weights.size)


def _irregular(run: TrainingRun) -> str | None:
    once = run.batches.resampling is Resampling.ONCE
    return "another order in every epoch" if once and run.batches.period is None else None


REGULAR = Hypothesis(
    "positions that are visited in the same order every epoch, if they are drawn once",
    _irregular,
    "visit the batches in the same order",
)

JOINT_TRANSPORT = Bound(
    id="random-order/shuffled/joint-transport",
    gives="the average over the example's position in a secret order, which stays hidden",
    covers=tuple(
        rule for rule in rules(Resampling.ONCE, Resampling.EACH_EPOCH) if rule.exchangeable
    ),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        REGULAR,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Joint transport of hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=shuffled_joint_transport,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the example's secret position, and hides late positions jointly",
)
