"""The bound for balls and bins in short steps: noise before the drawn position hides it, too.

The mixtures over a secret position hold with the smaller mus of early shifts, but for a small
probability in each data set.  Windows may contain the position they hide, and what earlier epochs
add is one more secret.  `docs/tightness.md#balls-and-bins` has the theorem.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from lastiterate._numerics.powers import exceeded_with
from lastiterate._numerics.rounding import Array, at_least, ulps, up
from lastiterate.bounds import quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.fixed_order.short_steps import (
    LEAST_CURVATURE,
    SHORT_STEP_NEEDS,
    equal_short_steps,
)
from lastiterate.bounds.shuffling.balls_and_bins import (
    BIN_WINDOWED_MIXTURE,
    bin_windowed_mixture,
    counterpart_of,
    hidden_count,
    one_sided,
    pairs_of,
)
from lastiterate.bounds.shuffling.early_transport import earlier_epoch_factors
from lastiterate.bounds.shuffling.end_windows import end_windows, geometric_edges
from lastiterate.bounds.shuffling.mixture_divergence import PositionMixture
from lastiterate.bounds.shuffling.position_transport import (
    LARGEST_MU,
    LARGEST_NOISE_SHARE,
    positions_of,
)
from lastiterate.bounds.shuffling.positions import Positions
from lastiterate.bounds.shuffling.proof_search import (
    BoundedBatches,
    MixtureParameters,
    MixtureSearch,
    failures_of_shifts,
)
from lastiterate.bounds.shuffling.shuffled_profile import ShuffledProfile
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps
from lastiterate.shifts.patterns import Spent

_FAILURES = (1e-9, 1e-14)  # probabilities of a larger batch; the best of them is taken
_USUAL_DELTA = 1e-12  # below it failures begin to count, and the bound without them is computed
_PREFERRING_LATER = 1.25  # so much more may the next later window of a position cost
_REACH = 0.55  # of the tail of the first position that no window hides; windows end there
_CERTAIN = ulps(64.0)  # roundings of probabilities of positions and of earlier epochs


def bin_early_mixture(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a mixture over the secret position, which earlier noise hides, too.

    **Bound.** As `random-order/balls-and-bins/windowed-mixture`, with the mus of `early_mus`, with
    windows that may contain the position they hide, and with :math:`10^{-15}(1 + e^\varepsilon)`
    and the probability of a batch of more than K examples added to delta.  If batches are drawn
    before every epoch, what earlier epochs add is a part of the mixture (`earlier_epochs`).

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
    for failure in _FAILURES:
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
    failure = up(limited.exceeded + _CERTAIN, ulps(4))
    return BoundedBatches(
        mixtures,
        _without_windows(run, limited, failure),
        failure,
        limited.short_steps.failure,
    )


def _without_windows(run: TrainingRun, limited: LimitedBatches, failure: float) -> PrivacyProfile:
    """The mixture over positions and over what earlier epochs add."""
    laws = [one.revealed() for _, one in limited.parts]
    weights = _averaged([share for share, _ in limited.parts], [found for found, _ in laws])
    mus = np.concatenate([found for _, found in laws])
    losses = shift_losses(mus, weights, two_sided=run.adjacency == "replace")
    known = SummedLossesProfile([Repeated(losses, 1)], lost=failure)
    return TwoSidedFailureProfile(known, limited.short_steps.failure)


def _averaged(shares: Sequence[float], weights: Sequence[Array]) -> Array:
    """The probabilities in several parts, one of which holds, all together."""
    return np.concatenate([share * one for share, one in zip(shares, weights, strict=True)])


@dataclass(frozen=True)
class EarlyMixtures:
    """The mixture for some parameters; None if all positions are hidden or out of range."""

    parts: Sequence[tuple[float, Positions]]
    window_unit: float  # steps
    # Mixtures do not depend on epsilon; unlike a cache of functools, a dict can be pickled.
    known: dict[MixtureParameters, PositionMixture | None] = field(default_factory=dict)

    def __call__(self, parameters: MixtureParameters) -> PositionMixture | None:
        if parameters not in self.known:
            self.known[parameters] = self._made(parameters)
        return self.known[parameters]

    def _made(self, parameters: MixtureParameters) -> PositionMixture | None:
        count = hidden_count(self.parts[0][1], parameters.hidden)
        if count is None:
            return None
        first = math.ceil(parameters.first_window * self.window_unit)
        mixture = self.mixture(count, min(parameters.noise, LARGEST_NOISE_SHARE), first)
        return None if mixture.is_out_of_range else mixture

    def mixture(self, hidden: int, noise_share: float, first_window: int) -> PositionMixture:
        """The components of the mixture in which windows hide the first `hidden` groups.

        The first window has `first_window` steps; if that is 0, they are as for longer steps.
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
            weights=_averaged(shares, [found.weights for found in known]),
            mus=np.concatenate([found.mus for found in known]),
            window_weights=weights[:hidden],
            window_costs=one.window_costs(windows, 1.0),
            earlier_mus=earlier,
            earlier_weights=_averaged(shares, [found.earlier_weights for found in known]),
            window_of=windows.window_of,
        )


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
