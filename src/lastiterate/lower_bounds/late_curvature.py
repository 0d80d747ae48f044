r"""Bounded gradients: iterates that travel along a slope and meet curvature shortly before the end.

**Instances.** All other examples share a loss on the line.  Its gradient is -G, the bound, up to a
kink p.  From there it rises with slope :math:`\kappa` until it reaches G, or until a second kink
after the example's last participation, and stays constant.  The example's loss is linear: its
gradient is -G in one world and L more in the other.  Until it passes p the iterate keeps as much of
the past as the penalty allows; then every step erases :math:`\eta(\kappa + \lambda)` of it.

**Law.** If it were certain between which steps the iterate passes the kinks, the last iterates
would be Gaussian, of equal variances.  So they are, but for the probability that some iterate is on
the wrong side of a kink, which is bounded by the sum over all steps.  It is taken off the power of
every test and added to its false positives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, Array, down, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.momentum_quadratics import (
    MOMENTUM_OR_AVERAGE,
    LinearSteps,
    linear_steps,
    variance_along,
)
from lastiterate.lower_bounds.quadratics import seen_together
from lastiterate.profile.lower import BestLowerProfile, MeansLowerProfile, PerturbedLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import Gradients, gradient_reach, has_bounded_gradients, local_curvatures
from lastiterate.run.training_run import TrainingRun

_MAX_STEPS = 200_000
_MAX_QUICK_STEPS = 5_000  # of those whose later positions need not be the most exposed
_CURVATURE_SHARES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.3)  # of the largest
_LATEST_POSITIONS = (1, 2, 4, 8, 16, 32, 64)  # from the end
_LARGEST_CONTRACTION_LOG = 5.0  # by all curved steps together; a logarithm
_PENALTY_PUSHES = (0.0, 0.5, 0.9)  # by the penalty at the kink, in units of the bound
_LARGEST_START = 1e280


def late_curvature_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the instances whose iterates meet their curvature late.

    **Bound.** :math:`\delta_\mu(\varepsilon) - (1 + e^\varepsilon)\tau`.  With :math:`w_k` the
    effect of step k's gradient on the result, :math:`\mu = |\sum_k w_k s_k| / \sqrt{\sum_k (w_k
    \sigma_k)^2 + \rho^2}` over the steps that see the example, and :math:`\tau` is the probability
    that an iterate is on the wrong side of a kink.

    **Holds when.** the order is fixed, gradients are bounded, losses may be linear, and the domain
    is unbounded.  Momentum or an average of iterates is allowed.

    **Tight.** For plain short steps, to some parts in a thousand, if the kink is passed clearly.

    **Source.** This library.

    **Computed as** a search over the first curved step and the curvature; rounded down.
    """
    return BestLowerProfile(
        tuple(
            PerturbedLowerProfile(
                MeansLowerProfile([1.0], [down(passage.mu, MILLIONS_OF_ROUNDINGS)]), passage.lost
            )
            for passage in passages(run)
        )
    )


def passages(run: TrainingRun) -> Iterator[Passage]:
    """The passage of each position and curvature that is lost least."""
    for position in _positions(run):
        losses = KinkedLosses(run, position)
        for share in _CURVATURE_SHARES:
            found = losses.passages(share * losses.largest_curvature)
            best = min(found, key=lambda passage: passage.lost, default=None)
            if best is not None and best.lost < 1.0:
                yield best


def _positions(run: TrainingRun) -> list[int]:
    """The position seen last; with momentum, which delays a step's effect, some others too."""
    count = run.batches.position_count(run.steps)
    latest = [int(run.batches.participations(k, run.steps).max(initial=-1)) for k in range(count)]
    order = sorted((k for k in range(count) if latest[k] >= 0), key=lambda k: -latest[k])
    if run.has_plain_steps:
        return order[:1]
    return [order[k - 1] for k in _LATEST_POSITIONS if k <= len(order)]


@dataclass(frozen=True)
class KinkedLosses:
    """The instances of a run in which the example has this position."""

    run: TrainingRun
    position: int

    @cached_property
    def steps(self) -> LinearSteps:
        return linear_steps(self.run)

    @cached_property
    def share(self) -> Array:
        """The share that the example, or its person, has of each batch up to the last with it."""
        seen = self.run.batches.participations(self.position, self.run.steps)
        shares = np.zeros(int(seen.max()) + 1)
        shares[seen] = seen_together(self.run) / self.run.batches.batch_size
        return shares

    @property
    def bound(self) -> float:
        """G: all examples are within the sensitivity of each other."""
        return gradient_reach(self.run)

    @property
    def own_gradients(self) -> tuple[float, float]:
        """The example's gradient in each world."""
        return -self.bound, self.run.sensitivity - self.bound

    @property
    def penalty(self) -> float:
        return self.run.loss.regulariser

    @cached_property
    def largest_curvature(self) -> float:
        """The largest curvature of the others' losses, without the penalty: no step overshoots."""
        span = local_curvatures(self.run)
        assert span is not None
        return min(span[1], 1.0 / float(np.max(self.run.step_size))) - self.penalty

    @cached_property
    def flat_covariances(self) -> Array:
        """The covariances of the states that steps find as long as none was curved."""
        slopes = np.full(self.share.size, self.penalty)
        return self.steps.covariances((0.0, 0.0, 0.0), 0, slopes)

    def _flat_means(self, start: float, pulls: Array) -> Array:
        slopes = np.full(self.share.size, self.penalty)
        return self.steps.means((start, 0.0), 0, slopes, pulls)

    @cached_property
    def flat_means(self) -> Array:
        """The mean states that steps find from a start at 0, in each world."""
        others = -self.bound * (1.0 - self.share)
        return np.stack(
            [self._flat_means(0.0, others + own * self.share) for own in self.own_gradients]
        )

    @cached_property
    def reach(self) -> Array:
        """The distances by which a start at 1 instead of 0 moves the states before each step."""
        return self._flat_means(1.0, np.zeros(self.share.size))

    def most_exposed(self, curvature: float) -> tuple[float, int]:
        """The largest mu, and the first curved step that has it; backwards from the end."""
        rows, noises = self.steps.rows(0, self.run.steps), self.steps.noise_std.tolist()
        apart, shares = (self.flat_means[0] - self.flat_means[1]).tolist(), self.share.tolist()
        covariances = self.flat_covariances.tolist()
        f, g = self.steps.released
        gap, variance, best = 0.0, self.run.release_noise_std**2, (0.0, 1)
        contracted, last = 0.0, self.share.size - 1
        for k in range(self.run.steps - 1, 0, -1):
            a00, a01, a10, a11, b0, b1 = rows[k]
            weight = f * b0 + g * b1
            share = shares[k] if k <= last else 0.0
            gap -= weight * share * self.run.sensitivity
            variance += (weight * noises[k]) ** 2
            slope = self.penalty + (curvature * (1.0 - share) if k <= last else 0.0)
            f, g = f * a00 + g * a10 + weight * slope, f * a01 + g * a11
            if k <= last:
                before = f * apart[k][0] + g * apart[k][1]
                total = variance + variance_along((f, g), covariances[k])
                if total > 0.0:
                    best = max(best, (abs(gap + before) / math.sqrt(total), k))
                contracted += self._effective_step(k) * curvature
            if contracted > _LARGEST_CONTRACTION_LOG:
                break
        return best

    def _effective_step(self, k: int) -> float:
        every = (self.run.steps,)
        momentum = float(np.broadcast_to(self.run.momentum, every)[k])
        return float(np.broadcast_to(self.run.step_size, every)[k]) / (1.0 - momentum)

    def passages(self, curvature: float) -> Iterator[Passage]:
        """The most exposed way past a kink into this curvature, at several speeds."""
        mu, first = self.most_exposed(curvature)
        if mu > 0.0:
            for start in self._starts(first):
                path = _Path(self, curvature, first, self.flat_means + start * self.reach)
                yield Passage(self.position, curvature, start, path.kink, path.end, mu, path.lost())

    def _starts(self, first: int) -> Iterator[float]:
        """Starts from which the penalty helps to pass the kink, as far as there is one."""
        if not self.penalty > 0.0:
            yield 0.0
        elif abs(float(self.reach[first, 0])) > 1.0 / _LARGEST_START:
            reached, moved = float(self.reach[first, 0]), float(self.flat_means[0, first, 0])
            starts = (
                (-push * self.bound / self.penalty - moved) / reached for push in _PENALTY_PUSHES
            )
            yield from (start for start in starts if abs(start) < _LARGEST_START)


@dataclass(frozen=True)
class Passage:
    """An instance: the iterate begins at `start`, and the others are curved from `kink` to `end`.

    Both worlds' results are Gaussian and `mu` apart, but for a probability of `lost` in each.
    """

    position: int
    curvature: float
    start: float
    kink: float
    end: float
    mu: float
    lost: float


@dataclass(frozen=True)
class _Path:
    """The way of the iterates in both worlds; `flat` are the mean states until the kink."""

    of: KinkedLosses
    curvature: float
    first: int
    flat: Array

    @cached_property
    def kink(self) -> float:
        """A point between what the first curved step finds and the step before."""
        before, after = self.flat[:, self.first - 1, 0], self.flat[:, self.first, 0]
        return float(before.max() + after.min()) / 2.0

    @cached_property
    def curved_slopes(self) -> Array:
        return self.of.penalty + self.curvature * (1.0 - self.of.share[self.first :])

    @cached_property
    def curved_means(self) -> Array:
        """The mean states that curved steps find, and those after them."""
        shares = self.of.share[self.first :]
        pulls = -(self.of.bound + self.curvature * self.kink) * (1.0 - shares)
        return self._means(self.flat[:, self.first], self.first, self.curved_slopes, pulls, shares)

    @cached_property
    def end(self) -> float:
        """The point at which the others' gradient reaches its bound, or stops rising before."""
        end = self.kink + 2.0 * self.of.bound / self.curvature
        if self.of.share.size == self.of.run.steps:
            return end
        before, after = self.curved_means[:, -2, 0], self.curved_means[:, -1, 0]
        return min(end, float(before.max() + after.min()) / 2.0)

    def lost(self) -> float:
        """The probability of an iterate on the wrong side of a kink, in either world."""
        of, first, count = self.of, self.first, self.of.share.size - self.first
        variances = of.flat_covariances[:first, 0]
        lost = _exceeding_probability(self.flat[:, :first, 0], self.kink, variances)
        covariances = of.steps.covariances(
            tuple(of.flat_covariances[first]), first, self.curved_slopes
        )
        curved, variances = self.curved_means[:, :count, 0], covariances[:count, 0]
        lost += _exceeding_probability(-curved, -self.kink, variances)
        lost += _exceeding_probability(curved, self.end, variances)
        return min(1.0, lost + self._later_lost_probability(covariances[-1]))

    def _later_lost_probability(self, covariance: Array) -> float:
        """The probability of an iterate before the end of the curvature in later steps."""
        of, first = self.of, self.of.share.size
        count = of.run.steps - first
        if not count:
            return 0.0
        pull = self.curvature * (self.end - self.kink) - of.bound
        slopes, pulls = np.full(count, of.penalty), np.full(count, pull)
        states = self.curved_means[:, -1]
        means = self._means(states, first, slopes, pulls, np.zeros(count))
        covariances = of.steps.covariances(tuple(covariance), first, slopes)
        return _exceeding_probability(-means[:, :count, 0], -self.end, covariances[:count, 0])

    def _means(
        self, states: Array, first: int, slopes: Array, pulls: Array, shares: Array
    ) -> Array:
        """The mean states in each world; the others have these pulls."""
        each = zip(states.tolist(), self.of.own_gradients, strict=True)
        return np.stack(
            [
                self.of.steps.means((x, y), first, slopes, pulls + own * shares)
                for (x, y), own in each
            ]
        )


def _exceeding_probability(means: Array, limit: float, variances: Array) -> float:
    """The probability that some value exceeds the limit, by a sum; in the world that does more."""
    rounding = MILLIONS_OF_ROUNDINGS * (np.abs(means) + abs(limit))
    room = limit - means - rounding
    with np.errstate(over="ignore"):
        spread = up(np.sqrt(np.maximum(variances, TINY)), MILLIONS_OF_ROUNDINGS)
        each = np.where(room > 0.0, ndtr(-room / spread), 1.0)
    return up(float(each.sum(axis=1).max()), MILLIONS_OF_ROUNDINGS) + TINY


def _gradients(run: TrainingRun) -> list[Gradients]:
    bound = gradient_reach(run) / run.sensitivity
    return [Gradients(-bound, 1.0 - bound, (-bound, bound))]


def _unbounded_gradients(run: TrainingRun) -> str | None:
    return None if has_bounded_gradients(run) else "gradients of any size"


def _no_curvature(run: TrainingRun) -> str | None:
    span, penalty = local_curvatures(run), run.loss.regulariser
    if span is None or not span[0] <= penalty:
        return f"{run.loss!r}"
    if not (span[1] > penalty and float(np.max(run.step_size)) * penalty < 1.0):
        return f"no curvature but the penalty's, {penalty!r}"
    return None


def _no_others(run: TrainingRun) -> str | None:
    alone = seen_together(run) == run.batches.batch_size
    return f"batch_size={run.batches.batch_size}" if alone else None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/late-curvature",
        gives="the privacy of iterates that meet curvature shortly before the end",
        covers=rules(Resampling.NEVER, exact_size=True),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis(
                "a bound on gradients", _unbounded_gradients, "see lower/drifting for plain steps"
            ),
            Hypothesis(
                "losses that may be linear but for the penalty, and curved elsewhere",
                _no_curvature,
                "see lower/quadratic",
            ),
            Hypothesis("other examples in each batch", _no_others, "see lower/quadratic"),
            MOMENTUM_OR_AVERAGE,
            conditions.at_most_steps(_MAX_STEPS),
        ),
        beyond_plain_steps=True,
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=late_curvature_lower_bound,
        gradients=_gradients,
        quick=lambda run: run.has_plain_steps or run.steps <= _MAX_QUICK_STEPS,
    ),
)
