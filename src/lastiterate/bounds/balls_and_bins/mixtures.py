"""The bounds for runs in which every example draws its batch independently and in secret.

Given all draws, the two runs of a pair have the same batches, so the order is fixed.  Steps
contract while no batch is too large; the event of a larger batch is added to delta.  Four bounds
use that: an average over the position of the differing example; a mixture of Gaussians over its
position; a mixture in which late positions have windows of noise of their own; and one for short
steps, in which noise before the drawn position hides it, too.  That last one holds with the smaller
mus of early shifts, but for a small probability in each data set; its windows may contain the
position they hide, and what earlier epochs add is one more secret.
`docs/tightness.md#balls-and-bins` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lastiterate._numerics.powers import exceeded_with
from lastiterate._numerics.rounding import Array, at_least, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.balls_and_bins.divergence import (
    MixtureDivergence,
    MixtureGrid,
    MixturePair,
    PositionMixture,
)
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.fixed_order.short_steps import (
    LEAST_CURVATURE,
    SHORT_STEP_NEEDS,
    equal_short_steps,
)
from lastiterate.bounds.shuffling.average import (
    MIXTURE,
    average_each_epoch,
    average_once,
    last_position_delta_lower_bound,
)
from lastiterate.bounds.shuffling.early_transport import earlier_epoch_factors
from lastiterate.bounds.shuffling.positions import (
    LARGEST_NOISE_SHARE,
    Positions,
    end_windows,
    geometric_edges,
)
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile, best_by_coordinates
from lastiterate.bounds.shuffling.transport import LARGEST_MU, REGULAR, positions_of
from lastiterate.bounds.subsampling.average import Majorant, fixed_size_majorant
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, several_draws
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from lastiterate.run.batch_rules.drawn import BallsAndBins, BallsAndBinsEachEpoch
from lastiterate.run.batch_rules.ordered import ShuffledEachEpoch, ShuffledOnce
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps
from lastiterate.shifts.patterns import Spent

# Probabilities of a larger batch.  A smaller one allows larger batches, on which steps contract
# less; the best of them is taken.
_FAILURES = (1e-9, 1e-14, 0.0)
_EARLY_FAILURES = (1e-9, 1e-14)
_USUAL_DELTA = 1e-12  # below it failures begin to count, and the bound without them is computed
_PREFERRING_LATER = 1.25  # so much more may the next later window of a position cost
_REACH = 0.55  # of the tail of the first position that no window hides; windows end there
_PROBABILITY_ROUNDINGS = ulps(64.0)  # roundings of probabilities of positions and of earlier epochs
_GIVE_UP_FACTOR = 2.0  # a coarse mixture so many times above the known delta is given up
_COARSE_GRID = MixtureGrid(cells=300, step=0.05, spacing=0.6)
_FINE_GRID = MixtureGrid(cells=1500, step=0.002, spacing=0.3)


def bin_average(run: TrainingRun) -> PrivacyProfile:
    r"""The average over the position of the differing example, for batches of random size.

    **Bound.** As for examples that are shuffled once, or before every epoch, with the contraction
    that holds for every batch of at most K examples: :math:`1 - c = \min(\eta\lambda,
    2 - \eta((M - \lambda) K/b + \lambda))`, :math:`\lambda` the shared regulariser.  K is
    a size that hardly any batch exceeds and for which steps are not too long; the probability of a
    larger one among those drawn, at most :math:`N\,P(\mathrm{Bin}(n, b/n) > K)` with
    :math:`N = n/b` if they are drawn once, else N = T, is added to delta.

    **Holds when.** every example draws one of the batches of an epoch independently and in secret,
    each with probability b/n, once or before every epoch; sums are divided by b, and no batch is
    cut; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not changed by
    norm clipping.  An example is replaced by another in the same batch, or adds nothing to the
    batch it has drawn; the number of examples is public.

    **Tight.** As for shuffled examples whose position is revealed at the end.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the draws; Ye and Shokri 2022,
    Lemma 4.1.

    **Computed as** for shuffled examples; the best of three choices of K.
    """
    return _best(position_laws(run))


def bin_average_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The average over the draws of all examples of a person, which are independent."""
    single = position_laws(with_single_examples(run))
    return BestProfile([several_draws(law, run.examples_per_person) for law in single])


def bin_average_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on this average's delta, from the very last batch alone."""
    return min(last_position_delta_lower_bound(one.run, epsilon) for one in majorants(run))


def bin_mixture(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a mixture of Gaussians over the secret position of the differing example.

    **Bound.** :math:`E_j N(\mu_j, 1)` against N(0, 1), in both directions: :math:`\mu_j` is the
    guarantee of position j, in the last epoch or in all, for the per-step sensitivity
    :math:`\eta C/b`.  If the example is replaced, the second is :math:`E_j N(-\mu_j, 1)`.
    The examples of a person draw batches independently, and their mus add up.
    Contraction and large batches are as for `random-order/balls-and-bins/average`.

    **Holds when.** that bound does, no gradient exceeds C, and an example is left out, or replaced.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches.

    **Source.** This library (`docs/tightness.md#balls-and-bins`); Kahane 1985; Bok, Su and
    Altschuler 2024, Theorem C.3.

    **Computed as** privacy losses in cells, rounded up.
    """
    return _best(_mixtures(run))


def bin_windowed_mixture(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a mixture over the secret position, with windows for late positions.

    **Bound.** At every epsilon the least of `random-order/balls-and-bins/mixture` and of
    :math:`E_j N(a_j, I)` against :math:`E_j N(-a_j, I)`, or against N(0, I) in both directions if
    the example is left out: :math:`a_j` has the length :math:`m_j` along one direction, and for
    late positions :math:`\rho_w` along that of a window w of the last steps.

    **Holds when.** that bound does, and step size and noise are constant.  A bounded domain is
    allowed, and not used.

    **Tight.** To a few per cent of an exactly solved instance.

    **Source.** This library (`docs/tightness.md#balls-and-bins`); Kahane 1985; Bok, Su and
    Altschuler 2024, Theorem C.3.

    **Computed as** sums of log-normal variables on a grid, larger in convex order, and upper sums
    over one normal variable.  Positions, windows and shares are searched for; any choice is valid.
    """
    without_windows = _mixtures(run)
    quick = _best(without_windows)
    limits = []
    for majorant, known in zip(majorants(one_sided(run)), without_windows, strict=True):
        positions = positions_of(majorant.run)
        if positions.mus().max() < LARGEST_MU:
            limits.append(BoundedBatches(_WindowedMixtures(positions), known, majorant.exceeded))
    if not limits:
        return quick
    return ShuffledProfile(quick, [MixtureSearch(pair, limits) for pair in pairs_of(run)])


def bin_early_mixture(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a mixture over the secret position, which earlier noise hides, too.

    **Bound.** As `random-order/balls-and-bins/windowed-mixture`, with the mus of `early_mus`, with
    windows that may contain the position they hide, and with :math:`10^{-15}(1 + e^\varepsilon)`
    and the probability of a batch of more than K examples added to delta.  If batches are drawn
    before every epoch, what earlier epochs add is a part of the mixture (`earlier_epoch_factors`).

    **Holds when.** that bound does, a step on K examples is shorter than 1/smoothness, nothing is
    projected, and the gradients of one example stay in a space of `Loss.outputs` dimensions.

    **Tight.** To 5 per cent of an exactly solved instance in the median, and to 35 at the most, if
    a step is at most .2/smoothness long (`docs/scoreboard.md`).

    **Source.** This library (`docs/tightness.md#balls-and-bins`); Kahane 1985; Bok, Su and
    Altschuler 2024, Theorem C.3.

    **Computed as** for `random-order/balls-and-bins/windowed-mixture`; any choice is valid.
    """
    limited = limited_batches(run)
    limits = [bounded(run, one) for one in limited]
    if not limits:
        return bin_windowed_mixture(run)
    quick: PrivacyProfile = BestProfile([limit.without_windows for limit in limits])
    if all(one.largest_mu < LARGEST_MU for one in limited):
        searches = [MixtureSearch(pair, limits, early=True) for pair in pairs_of(run)]
        quick = ShuffledProfile(quick, searches)
    return FallbackProfile(quick, below=_USUAL_DELTA, fallback=partial(bin_windowed_mixture, run))


def _superseded_bounds(run: TrainingRun) -> tuple[Bound, ...]:
    """Bounds that need not be evaluated as well: the windowed mixture includes `BIN_MIXTURE`."""
    return (BIN_MIXTURE,) if run.examples_per_person == 1 else ()


BIN_AVERAGE = Bound(
    id="random-order/balls-and-bins/average",
    gives="the average over the secret position that an example has drawn on its own",
    covers=(BallsAndBins, BallsAndBinsEachEpoch),
    needs=(conditions.SECRET_ORDER, *conditions.CONTRACTING),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=bin_average,
    delta_lower_bound=bin_average_delta_lower_bound,
    for_persons=bin_average_for_persons,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the secret position that the example has drawn",
    given_order=True,
)


BIN_MIXTURE = Bound(
    id="random-order/balls-and-bins/mixture",
    gives="a mixture over the secret position that an example has drawn, which stays hidden",
    covers=BIN_AVERAGE.covers,
    needs=(*BIN_AVERAGE.needs, conditions.BOUNDED_GRADIENTS),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Mixtures over hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=bin_mixture,
    for_persons=bin_mixture,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="mixes over the secret position that the example has drawn, which stays hidden",
)


BIN_WINDOWED_MIXTURE = Bound(
    id="random-order/balls-and-bins/windowed-mixture",
    gives="the same, with windows of noise of their own for late positions",
    covers=BIN_MIXTURE.covers,
    needs=(*BIN_MIXTURE.needs, conditions.CONSTANT, conditions.NOISY, REGULAR),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Windowed mixtures over hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=bin_windowed_mixture,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="mixes over the example's hidden position, late ones in windows of their own",
    supersedes=_superseded_bounds,
)


BIN_EARLY_MIXTURE = Bound(
    id="random-order/balls-and-bins/early-mixture",
    gives="the same for short steps, in which noise before a participation hides it, too",
    covers=BIN_WINDOWED_MIXTURE.covers,
    needs=tuple(dict.fromkeys((*BIN_WINDOWED_MIXTURE.needs, *SHORT_STEP_NEEDS))),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden draws in short steps",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=bin_early_mixture,
    rests_on=BIN_WINDOWED_MIXTURE.rests_on,
    charges="mixes over the example's hidden position, which noise before and after it hides",
)


def position_laws(run: TrainingRun) -> list[GaussianMixtureProfile]:
    """The law of the mu of the example's position, for some limits K on the size of batches."""
    average = average_once if run.batches.resampling is Resampling.ONCE else average_each_epoch
    laws = []
    for majorant in majorants(run):
        known = average(majorant.run)
        laws.append(GaussianMixtureProfile(known.weights, known.mus, lost=majorant.exceeded))
    return laws


def majorants(run: TrainingRun) -> list[Majorant]:
    """Shuffled runs that cost as much if no batch has more than K, for some choices of K."""
    counterpart, draws = counterpart_of(run)
    every = (fixed_size_majorant(run, counterpart, draws, failure) for failure in _FAILURES)
    return list(dict.fromkeys(every))


def counterpart_of(run: TrainingRun) -> tuple[type[BatchRule], int]:
    """The shuffling rule that stands for this drawing rule, and how many batches are drawn."""
    if run.batches.resampling is Resampling.ONCE:
        return ShuffledOnce, min(run.batches.batches_per_epoch, run.steps)
    return ShuffledEachEpoch, run.steps


def _mixtures(run: TrainingRun) -> list[PrivacyProfile]:
    """The mixture over positions, for each limit on the size of batches."""
    size, two_sided = run.examples_per_person, run.adjacency == "replace"
    profiles: list[PrivacyProfile] = []
    for law in position_laws(one_sided(run)):
        if size > 1:
            law = several_draws(law, size)
        losses = shift_losses(law.mus, law.weights, two_sided=two_sided)
        profiles.append(SummedLossesProfile([Repeated(losses, 1)], lost=law.lost))
    return profiles


def one_sided(run: TrainingRun) -> TrainingRun:
    """The run of a single example against that without it: they differ by one gradient."""
    single = with_single_examples(run)
    if run.adjacency != "replace":
        return single
    assert run.gradient_bound is not None
    return single.replace(adjacency="zero-out", sensitivity=run.gradient_bound)


def _best(profiles: list[PrivacyProfile] | list[GaussianMixtureProfile]) -> PrivacyProfile:
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def pairs_of(run: TrainingRun) -> tuple[MixturePair, ...]:
    """The pairs of laws whose divergence bounds that of the run, one for each direction."""
    if run.adjacency == "replace":
        return (MixturePair.MIRRORED,)
    return MixturePair.MIXTURE_FIRST, MixturePair.MIXTURE_SECOND


@dataclass(frozen=True)
class LimitedBatches:
    """Positions in a run whose batches, the example included, have a limited size.

    One of `parts` holds, by what earlier epochs add; each has its probability.  A batch is larger
    with probability `exceeded`.
    """

    parts: Sequence[tuple[float, Positions]]
    short_steps: ShortSteps
    exceeded: float

    @property
    def largest_mu(self) -> float:
        """The largest mu of any position."""
        return max(float(one.mus().max()) for _, one in self.parts)


def limited_batches(run: TrainingRun) -> list[LimitedBatches]:
    """Some limits on the size of batches, those on which steps still keep earlier noise."""
    single = one_sided(with_single_examples(run))
    equal = equal_short_steps(single)
    assert equal is not None
    counterpart, draws = counterpart_of(run)
    batches, loss = run.batches, run.loss
    eta = float(np.max(run.step_size))
    assert loss.smoothness is not None
    own = at_least(loss.smoothness - loss.regulariser, ulps=2)
    found = []
    for failure in _EARLY_FAILURES:
        # Others in one batch; the run with the example has one more, and must keep noise, too.
        others = exceeded_with(failure / draws, batches.examples - 1, batches.share)
        smoothness = at_least(own * (others + 1) / batches.batch_size + loss.regulariser, ulps=8)
        if not at_least(eta * smoothness, ulps=4) < 1.0:
            continue
        known = replace(loss, smoothness=smoothness, strong_convexity=loss.regulariser)
        fixed = single.replace(
            clip_norm=None,  # it never acts
            loss=known,
            batches=counterpart(batches.examples, batches.batch_size),
        )
        short_steps = replace(
            equal,
            gap=max(quantities.constant_gap(fixed), 0.0),
            curvature=max(at_least(eta * smoothness, ulps=4), LEAST_CURVATURE),
        )
        factors = earlier_epoch_factors(fixed, short_steps.gap)
        parts = [(share, positions_of(fixed, short_steps, factor)) for share, factor in factors]
        exceeded = failure if others < batches.examples - 1 else 0.0
        found.append(LimitedBatches(parts, short_steps, exceeded))
    return found


def bounded(run: TrainingRun, limited: LimitedBatches) -> BoundedBatches:
    """The mixtures for batches of a limited size, and what is charged for larger ones."""
    mixtures = EarlyMixtures(limited.parts, 1.0 / limited.short_steps.curvature)
    failure = up(limited.exceeded + _PROBABILITY_ROUNDINGS, ulps(4))
    return BoundedBatches(
        mixtures,
        _without_windows(run, limited, failure),
        failure,
        limited.short_steps.failure,
    )


def _without_windows(run: TrainingRun, limited: LimitedBatches, failure: float) -> PrivacyProfile:
    """The mixture over positions and over what earlier epochs add."""
    laws = [one.revealed() for _, one in limited.parts]
    weights = _joint_weights([share for share, _ in limited.parts], [found for found, _ in laws])
    mus = np.concatenate([found for _, found in laws])
    losses = shift_losses(mus, weights, two_sided=run.adjacency == "replace")
    known = SummedLossesProfile([Repeated(losses, 1)], lost=failure)
    return TwoSidedFailureProfile(known, limited.short_steps.failure)


class TwoSidedFailureProfile(PrivacyProfile):
    """`known`, if shifts fail with a probability of `failure` in each data set."""

    def __init__(self, known: PrivacyProfile, failure: float) -> None:
        self.known, self.failure = known, failure

    def __repr__(self) -> str:
        return f"TwoSidedFailureProfile({self.known!r}, failure={self.failure:.1e})"

    def deltas(self, epsilons: Array) -> Array:
        failures = [failures_of_shifts(self.failure, float(one)) for one in epsilons.ravel()]
        total = self.known.deltas(epsilons) + np.reshape(failures, epsilons.shape)
        return np.asarray(np.minimum(up(total, ulps(2)), 1.0))

    def renyi(self, order: float) -> float:
        """inf: failures have no finite divergence."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf: failures do not fall off as a Gaussian's losses do."""
        return math.inf


def failures_of_shifts(failure: float, epsilon: float) -> float:
    """The charge to delta if shifts fail with this probability in each data set.

    The second law counts e^epsilon times, and so do its failures: each is another one for every
    position, so that they do not cancel against a law without the example.
    """
    return up(failure * (1.0 + math.exp(min(epsilon, 700.0))), ulps(8.0))


@dataclass(frozen=True)
class BoundedBatches:
    """The mixtures given that no batch is too large, which fails with probability `failure`.

    `without_windows` is the guarantee if no position is hidden by a window.  With probability
    `shift_failure`, in each data set, shifts do not hide the example where it is.
    """

    mixtures: _WindowedMixtures | EarlyMixtures
    without_windows: PrivacyProfile
    failure: float
    shift_failure: float = 0.0


@dataclass(frozen=True)
class MixtureParameters:
    """The share of positions that windows hide, and the share of noise in the windows.

    `first_window` is the length of the first window, in units of 1/(step size x smoothness).
    """

    hidden: float = 0.25
    noise: float = 0.6
    first_window: float = 0.0


_VALUES = {
    "hidden": (0.01, 0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.15, 0.3, 0.45, 0.6, 0.75, LARGEST_NOISE_SHARE),
}
_EARLY_START = MixtureParameters(noise=0.75, first_window=1.0)
_EARLY_VALUES = {
    "hidden": (0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.3, 0.6, 0.75, LARGEST_NOISE_SHARE),
    "first_window": (0.0, 0.5, 1.0, 1.5, 2.2),
}


@dataclass(frozen=True)
class _WindowedMixtures:
    """The mixture for shares of positions and noise; None if all are hidden or out of range."""

    positions: Positions

    def __call__(self, parameters: MixtureParameters) -> PositionMixture | None:
        count = hidden_count(self.positions, parameters.hidden)
        if count is None:
            return None
        mixture = self.positions.mixture(count, parameters.noise)
        return None if mixture.is_out_of_range else mixture


def hidden_count(positions: Positions, share: float) -> int | None:
    """The number of the latest groups that have this share; None if these are all."""
    weights = positions.weights()
    before = np.cumsum(weights) - weights
    count = max(int(np.searchsorted(before, share)), 1)
    return None if count >= weights.size else count


@dataclass(frozen=True)
class EarlyMixtures:
    """The mixture for some parameters; None if all positions are hidden or out of range."""

    parts: Sequence[tuple[float, Positions]]
    window_unit: float  # steps
    # Mixtures do not depend on epsilon; unlike a cache of functools, a dict can be pickled.
    known: dict[MixtureParameters, PositionMixture | None] = field(default_factory=dict)

    def __call__(self, parameters: MixtureParameters) -> PositionMixture | None:
        if parameters not in self.known:
            self.known[parameters] = self._compute(parameters)
        return self.known[parameters]

    def _compute(self, parameters: MixtureParameters) -> PositionMixture | None:
        count = hidden_count(self.parts[0][1], parameters.hidden)
        if count is None:
            return None
        first = math.ceil(parameters.first_window * self.window_unit)
        mixture = self.mixture(count, parameters.noise, first)
        return None if mixture.is_out_of_range else mixture

    def mixture(self, hidden: int, noise_share: float, first_window: int) -> PositionMixture:
        """The components of the mixture in which windows hide the first `hidden` groups.

        The first window has `first_window` steps; if that is 0, windows are those of `end_windows`.
        """
        one = self.parts[0][1]
        tails, weights = one.tails, one.weights()
        before = int(tails[hidden]) if hidden < tails.size else int(tails[-1]) + 1
        # Windows leave some noise to the positions that they do not hide.
        edges = (
            geometric_edges(first_window, max(round(_REACH * before), 1))
            if first_window
            else end_windows(tails[:hidden], 1.0).edges
        )
        reserved = Spent(int(edges[-1]), noise_share)
        known = [positions.beside(hidden, reserved) for _, positions in self.parts]
        earlier = np.concatenate([found.earlier_mus for found in known])
        windows = one.windows(
            edges, tails[:hidden], noise_share, 1.0, float(earlier.max()), _PREFERRING_LATER
        )
        shares = [share for share, _ in self.parts]
        return PositionMixture(
            weights=_joint_weights(shares, [found.weights for found in known]),
            mus=np.concatenate([found.mus for found in known]),
            window_weights=weights[:hidden],
            window_costs=one.window_costs(windows, 1.0),
            earlier_mus=earlier,
            earlier_weights=_joint_weights(shares, [found.earlier_weights for found in known]),
            window_of=windows.window_of,
        )


def _joint_weights(shares: Sequence[float], weights: Sequence[Array]) -> Array:
    """The probabilities in several parts, one of which holds, all together."""
    return np.concatenate([share * one for share, one in zip(shares, weights, strict=True)])


@dataclass(frozen=True)
class MixtureSearch:
    """The search for the mixture of one pair of laws, among limits on the size of batches."""

    pair: MixturePair
    limits: Sequence[BoundedBatches]
    early: bool = False

    def __call__(self, epsilon: float, delta: float) -> _MixtureOrFailure | None:
        """A mixture for the limit that is best without windows; None if `delta` is far away."""
        at = np.array([epsilon])
        limit = min(self.limits, key=lambda one: float(one.without_windows.deltas(at)[0]))

        def cost(parameters: MixtureParameters) -> float:
            mixture = self._mixture(limit, parameters, epsilon, _COARSE_GRID)
            return math.inf if mixture is None else mixture.delta(epsilon)

        start = _EARLY_START if self.early else MixtureParameters()
        values = _EARLY_VALUES if self.early else _VALUES
        best, least = best_by_coordinates(start, values, cost)
        if not least < _GIVE_UP_FACTOR * delta:
            return None
        return self._mixture(limit, best, epsilon, _FINE_GRID)

    def _mixture(
        self,
        limit: BoundedBatches,
        parameters: MixtureParameters,
        epsilon: float,
        grid: MixtureGrid,
    ) -> _MixtureOrFailure | None:
        mixture = limit.mixtures(parameters)
        if mixture is None:
            return None
        divergence = MixtureDivergence(mixture, self.pair, epsilon, grid)
        return _MixtureOrFailure(divergence, limit.failure, limit.shift_failure)


@dataclass(frozen=True)
class _MixtureOrFailure:
    divergence: MixtureDivergence
    failure: float
    shift_failure: float

    def delta(self, epsilon: float) -> float:
        failures = self.failure + failures_of_shifts(self.shift_failure, epsilon)
        return min(up(self.divergence.delta(epsilon) + failures, ulps(8.0)), 1.0)
