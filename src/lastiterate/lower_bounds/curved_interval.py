r"""Secret batches and bounded gradients: iterates that rest on an interval where the others curve.

**Instances.** All other examples share a loss on the line whose gradient is :math:`-p + \kappa u`
at a distance u from a point of rest, as far as the noise ever carries the iterate, and constant
beyond.  The penalty holds the iterate there: it balances the pull p, which may be near the bound.
The example's loss is linear, and its gradient is against p in one world.  In a batch of b examples
it has the position of another, so that a participation moves the iterate by
:math:`(\eta/b)(p + e)`, e being the example's own gradient, and the batch curves 1/b less.

**Law.** Given the participations V the last iterate is Gaussian, but for the probability of leaving
the interval.  A step keeps :math:`a = 1 - \eta(\kappa + \lambda)` of the past, or
:math:`a' = a + \eta\kappa/b` if it has the example.  So the mean is at least
:math:`\sum_k V_k a^{T-k}` moves and at most :math:`\sum_k V_k a'^{T-k}`, and the standard deviation
is between those of a and of a', :math:`s \le s'`.  As :math:`|\Phi(x/s) - \Phi(x/s')| \le
(s'/s - 1)/4`, and the larger of the two is at least 1/2 where the order of both changes, a mixture
with s or s' in all of its parts errs by a factor of at most :math:`1 \pm (s'/s - 1)/2`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.drawn_sums import (
    ERROR,
    FARTHEST_MEAN,
    Draws,
    ThresholdLowerProfile,
    below,
)
from lastiterate.lower_bounds.quadratics import hidden_steps, shift_over_deviation, unsteady
from lastiterate.profile.lower import BestLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import Gradients, gradient_reach, has_bounded_gradients, local_curvatures
from lastiterate.run.training_run import TrainingRun

_CURVATURE_SHARES = (1.0, 0.6, 0.3, 0.1)  # of the largest
_LARGEST_DEVIATION = 10.0  # standard deviations
_THRESHOLDS = 1_000


@dataclass(frozen=True)
class CurvedInterval:
    """An interval around a point of rest; gradients in units of the sensitivity.

    The others have `curvature` and pull with `pull` at rest, the example with `own` in our world
    and 1 less in theirs.  `half` is half the length of the interval, in parameters.
    """

    curvature: float
    pull: float
    own: float
    half: float
    rise: float

    @property
    def gradients(self) -> Gradients:
        """Those of the others are their pull at rest, and up to `rise` more or less elsewhere."""
        return Gradients(self.own, self.own - 1.0, (-self.pull - self.rise, -self.pull + self.rise))

    @property
    def moves(self) -> tuple[float, float]:
        """The move of the iterate by a participation in each world, in units of eta L/b."""
        return self.own + self.pull, self.own - 1.0 + self.pull


def curved_interval_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the instances whose iterates rest on a curved interval.

    **Bound.** The exact curve of :math:`g S + N(0, 1)` against :math:`(g - 1) S + N(0, 1)` in units
    of the last iterate's deviation, by thresholds: S sums :math:`(\eta L/b)\,a^{age}` over the
    participations, which stay hidden, and g is up to 2 where an example may be left out, 1 where
    it is replaced.

    **Holds when.** batches have a fixed size and are drawn in secret, gradients are bounded, losses
    may be linear, steps and noise are constant, and the domain is unbounded.

    **Tight.** Above `lower/quadratic` where :math:`\eta M` is .3 and more.

    **Source.** This library.

    **Computed as** Fourier series of the laws of both results, over a few curvatures; rounded down.
    """
    return BestLowerProfile(tuple(interval_profile(run, one) for one in intervals(run)))


def intervals(run: TrainingRun) -> Iterator[CurvedInterval]:
    """The intervals that are long enough for the noise, without a pull and with the largest."""
    span = local_curvatures(run)
    assert span is not None
    step, penalty = float(np.max(run.step_size)), run.loss.regulariser
    own = gradient_reach(run) / run.sensitivity
    largest = min(span[1], 1.0 / step) - penalty
    for share in _CURVATURE_SHARES:
        curvature = share * largest
        half = _reach(run, curvature, own)
        rise = up(curvature * half / run.sensitivity, MILLIONS_OF_ROUNDINGS)
        if rise <= own:
            yield CurvedInterval(curvature, 0.0, own, half, rise)
            if penalty > 0.0:
                yield CurvedInterval(curvature, own - rise, own, half, rise)


def _reach(run: TrainingRun, curvature: float, own: float) -> float:
    """The farthest that noise and any number of participations move the iterate from rest."""
    gap = _gap(run, curvature, with_example=True)
    step, noise = float(np.max(run.step_size)), float(np.max(run.noise_std))
    deviation = step * noise / np.sqrt(gap * (2.0 - gap))
    moved = 2.0 * own * step * run.sensitivity / run.batches.batch_size / gap
    return up(float(_LARGEST_DEVIATION * deviation + moved), MILLIONS_OF_ROUNDINGS)


def _gap(run: TrainingRun, curvature: float, *, with_example: bool) -> float:
    """1 - a, or 1 - a' for a batch with the example."""
    share = 1.0 - 1.0 / run.batches.batch_size if with_example else 1.0
    gap = float(np.max(run.step_size)) * (run.loss.regulariser + curvature * share)
    return down(gap, MILLIONS_OF_ROUNDINGS) if with_example else min(gap, 1.0)


def interval_profile(run: TrainingRun, one: CurvedInterval) -> ThresholdLowerProfile:
    """The lower bound from one instance."""
    gaps = [_gap(run, one.curvature, with_example=sees) for sees in (False, True)]
    fewest, most = (hidden_steps(run, gap).whole for gap in gaps)
    units = [shift_over_deviation(run, gap) for gap in gaps]
    # The deviation of a', over that of a: both units have the same numerator.
    wider = up(max(units[0] / units[1], 1.0), 4.0 * MILLIONS_OF_ROUNDINGS)
    unit = units[0]
    farthest = max(abs(move) for move in one.moves) * most.most(1e-15) * unit
    if farthest > FARTHEST_MEAN:
        unit *= FARTHEST_MEAN / farthest  # as more noise would have it
    ours, theirs = (unit * move for move in one.moves)
    thresholds = _thresholds(ours, theirs, most)
    theirs_draws = most if theirs > 0.0 else fewest
    narrow_ours = below(thresholds, fewest, ours, above_truth=True)
    narrow_theirs = below(thresholds, theirs_draws, theirs, above_truth=False)
    wide_ours = below(thresholds / wider, fewest, ours / wider, above_truth=True)
    wide_theirs = below(thresholds / wider, theirs_draws, theirs / wider, above_truth=False)
    off = (wider - 1.0) / 2.0
    left = up(2.0 * run.steps * float(ndtr(-_LARGEST_DEVIATION)), MILLIONS_OF_ROUNDINGS)
    false = np.concatenate([1.0 - wide_theirs, wide_ours])
    true = np.concatenate([1.0 - narrow_ours, narrow_theirs])
    return ThresholdLowerProfile(
        np.clip(up(false, off) + ERROR + left, 0.0, 1.0),
        np.clip(down(true, off) - ERROR - left, 0.0, 1.0),
    )


def _thresholds(ours: float, theirs: float, draws: Draws) -> Array:
    most = draws.most(1e-15)
    low = min(theirs, 0.0) * most - 9.0
    high = min(max(ours, 0.0) * most + 9.0, max(theirs, 0.0) * most + 37.0)
    return np.linspace(low, high, _THRESHOLDS)


def _no_interval(run: TrainingRun) -> str | None:
    if not has_bounded_gradients(run):
        return "gradients of any size"
    span, penalty = local_curvatures(run), run.loss.regulariser
    if span is None or not span[0] <= penalty < span[1]:
        return f"{run.loss!r}"
    if not float(np.max(run.step_size)) * penalty < 1.0:
        return f"step_size * regulariser = {float(np.max(run.step_size)) * penalty!r}"
    if run.batches.batch_size < 2:
        return f"batch_size={run.batches.batch_size}"
    if next(intervals(run), None) is None:
        ratio = run.sensitivity / float(np.max(run.noise_std))
        return f"sensitivity / noise_std = {ratio:.3g}"
    return None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/curved-interval",
        gives="the privacy of iterates that rest where the other examples' loss curves",
        covers=rules(Resampling.ONCE, Resampling.EACH_EPOCH, Resampling.EACH_STEP, exact_size=True),
        needs=(
            conditions.UNBOUNDED,
            conditions.NOISY,
            Hypothesis("constant steps on convex losses", unsteady, "see lower/quadratic"),
            Hypothesis(
                "a bound on gradients far above the noise, and losses that may be linear, or curve",
                _no_interval,
                "see lower/quadratic",
            ),
        ),
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=curved_interval_lower_bound,
        gradients=lambda run: (one.gradients for one in intervals(run)),
    ),
)
