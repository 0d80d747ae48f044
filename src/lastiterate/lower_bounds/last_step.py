r"""Runs whose release reveals the very last step, next to the sum of all steps.

A step of :math:`\eta M \ge 1` may erase all earlier steps: on a loss of curvature
:math:`1/\eta` it takes every point to the same one.  Let it do so in one direction, while another
direction keeps as much as the description allows.  Then the last iterate reveals two things: a sum
over all steps, under all their noise, and the move of the last step, under the noise of that step.

**Gradients of any size.** All examples share a loss whose gradient is so large that the iterate
travels, in a third direction, much farther in a step than noise ever carries it.  Where it is tells
the time, so curvatures, and the direction in which the example in question differs by L from what
it is in the other world, may be others in every step: until the last step it differs along
the direction that keeps all steps, in the last step along the one that is erased.

**Bounded gradients.** The others' loss has curvature :math:`1/\eta - \lambda` along the direction
that is erased, on a stretch that is long beside the noise (`Stretch`); the example's own loss is
linear, with a share of its slope in each direction.  In a batch of exact size it replaces another
example, which may pull the other way.  A step takes the whole stretch to one point; beyond it the
others' gradient is constant, and within its bound.  In units of a step's noise the stretch may be
long, because a bound on gradients is `b r` of these.  With the example a batch of b keeps 1/b of
the past; batches of random size keep what they vary by.

The iterate may *rest* on the stretch, where the others have no gradient or, against a penalty, one
near its bound.  Without a penalty it may *pass* it, in the last step only, being pulled with nearly
the bound all the way: noise adds up until then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import FEW_ROUNDINGS, MILLIONS_OF_ROUNDINGS, Array, down, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.drawn_sums import (
    Tails,
    edges_up_to,
    gaussian_tails,
    two_statistics_profile,
)
from lastiterate.lower_bounds.quadratics import hidden_steps, shift_over_deviation, unsteady
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import (
    Gradients,
    gradient_reach,
    has_bounded_gradients,
    linear_gradients,
    local_curvatures,
    quadratic_curvatures,
)
from lastiterate.run.training_run import TrainingRun

_SHARES = (0.0, 0.4)  # of the slope, along the direction that remembers
_LARGEST_DEVIATION = 10.0  # standard deviations, in any step
_LARGEST_LAST_DEVIATION = 8.0  # standard deviations, in one or two
_LOST_CHANCE = 1e-15
_LARGEST_KEPT_SHARE = 0.7
_LONGEST_PASSED_SHARE = 0.45  # of the way of a step, for one that passes
_CHANCE_LOGS = np.arange(36.0)  # minus the logarithms of chances
_QUIET_STEPS = 3


def last_step_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""A lower bound from two statistics: the sum over all steps and the last step's own move.

    **Bound.** The exact curve of :math:`(gS + N(0, 1), g r V_T + N(0, 1))` against the same with
    another g: S sums what is left of all participations, V_T is 1 if the last step saw the
    example, and r = L/(b sigma).  With the second alone, of a chance p = b/n, that is
    :math:`p\,\delta_r(\log(1 + (e^\varepsilon - 1)/p))`.

    **Holds when.** batches are drawn in secret, :math:`\eta M \ge 1`, steps, noise and batch size
    are constant, the domain is unbounded, and, where gradients are bounded, single ones are well
    below the noise of a step.

    **Tight** for a single step, and nearly so where one participation tells more than all
    others together (r of 2 and more).

    **Source.** This library.

    **Computed as** tests that accept above a decreasing curve, on a grid of the sum; rounded down.
    """
    if not has_bounded_gradients(run):
        return BestLowerProfile((_travelling_profile(run),))
    return BestLowerProfile(tuple(_stretch_profiles(run)))


def _travelling_profile(run: TrainingRun) -> LowerProfile:
    span = quadratic_curvatures(run)
    assert span is not None
    gap = _step(run) * span[0]
    own = _own_shift(run) / _spread(run)
    factors = (shift_over_deviation(run, gap), 0.0)
    tails = gaussian_tails(edges_up_to(own), (own, 0.0))
    return two_statistics_profile(hidden_steps(run, gap), factors, tails, last_in_sum=False)


def _stretch_profiles(run: TrainingRun) -> Iterator[LowerProfile]:
    gap = _step(run) * run.loss.regulariser
    hidden, unit = hidden_steps(run, gap), shift_over_deviation(run, gap)
    for stretch, share in product(_stretches(run), _SHARES):
        along = math.sqrt(1.0 - share * share)
        sides = (stretch.bound, stretch.bound - 1.0)
        ours, theirs = (_own_shift(run) * (along * side + stretch.pull) for side in sides)
        factors = (unit * share * sides[0], unit * share * sides[1])
        tails = stretch.tails(ours, theirs, _spread(run))
        yield two_statistics_profile(hidden, factors, tails, last_in_sum=True)


def _gradients(run: TrainingRun) -> list[Gradients]:
    if not has_bounded_gradients(run):
        return linear_gradients(run)
    return [stretch.gradients for stretch in _stretches(run)]


def _stretches(run: TrainingRun) -> list[Stretch | VaryingStretch]:
    most_participations = hidden_steps(run, 0.0).whole.most(1e-15)
    return list(stretches(run, _own_shift(run), most_participations))


def _step(run: TrainingRun) -> float:
    return float(np.max(run.step_size))


def _own_shift(run: TrainingRun) -> float:
    """L/(b sigma), rounded down, which only makes the two worlds harder to tell apart."""
    noise = float(np.max(run.noise_std))
    return down(run.sensitivity / run.batches.batch_size / noise, MILLIONS_OF_ROUNDINGS)


def _spread(run: TrainingRun) -> float:
    """The noise of the last step and of the release, in units of the former."""
    return math.hypot(1.0, run.release_noise_std / (_step(run) * float(np.max(run.noise_std))))


@dataclass(frozen=True)
class Stretch:
    """The effect of the last step on a curved stretch; distances in units of its noise.

    In units of the sensitivity the example has the gradient `bound` in our world and 1 less in
    theirs, and the others pull against it with `pull`.  Before the last step the iterate is
    Gaussian, of deviation `noise`, around a point at most `moved` from the middle of the stretch,
    and on it but for a chance of `lost`.  A last step with the example keeps `kept` of that.
    """

    bound: float
    pull: float
    kept: float
    noise: float
    moved: float
    lost: float

    @property
    def gradients(self) -> Gradients:
        return _gradients_on_stretch(self.bound)

    def tails(self, ours: float, theirs: float, spread: float) -> Tails:
        """Tails of the iterate after a last step that the example moves by `ours` or by `theirs`.

        `spread` is the noise of the step and of the release together.
        """
        edges = edges_up_to(ours / spread)
        wider = up(math.hypot(spread, self.kept * self.noise), MILLIONS_OF_ROUNDINGS)
        off = up(self.kept * self.moved, MILLIONS_OF_ROUNDINGS)

        def above(mean: float) -> tuple[Array, Array]:
            ahead = mean - edges * spread
            return ndtr(ahead / spread), ndtr(ahead / wider)

        neither = np.asarray(ndtr(-edges))
        ours_seen, theirs_seen = np.minimum(*above(ours - off)), np.maximum(*above(theirs + off))
        return Tails(edges, ours_seen, neither, theirs_seen, neither, self.lost)


@dataclass(frozen=True)
class VaryingStretch:
    """Batches vary in size, so that every step keeps some of the noise and moves before it.

    At most `shares` with these `chances`, and never more than the last.  With a chance of
    `quiet`, independently of all else, the last few steps before did not see the example.
    """

    bound: float
    shares: Array
    chances: Array
    lost: float
    quiet: float
    pull: float = 0.0

    @property
    def gradients(self) -> Gradients:
        return _gradients_on_stretch(self.bound)

    def tails(self, ours: float, theirs: float, spread: float) -> Tails:
        """The tails of a `Stretch`."""
        kept = float(self.shares[-1])
        edges = edges_up_to(ours / spread)
        wider = np.sqrt(spread**2 + self.shares**2 / (1.0 - kept**2))[:, None]

        def above(mean: float, earlier: float, *, rounded_up: bool) -> Array:
            moved = abs(earlier) / (1.0 - kept) * (1.0 if rounded_up else -1.0)
            total = np.zeros(edges.size)
            for chance, faded in ((self.quiet, kept**_QUIET_STEPS), (1.0 - self.quiet, 1.0)):
                ahead = (mean + self.shares * moved * faded)[:, None] - edges * spread
                either = np.stack([ahead / spread, ahead / wider])
                best = either.max(axis=0) if rounded_up else either.min(axis=0)
                total += chance * (self.chances @ ndtr(best))
            return total

        return Tails(
            edges,
            above(ours, ours, rounded_up=False),
            above(0.0, ours, rounded_up=False),
            above(theirs, theirs, rounded_up=True),
            above(0.0, theirs, rounded_up=True),
            self.lost,
        )


def _gradients_on_stretch(bound: float) -> Gradients:
    """The others' are within the bound, beyond the stretch at one end of it."""
    return Gradients(bound, bound - 1.0, (-bound, bound))


def stretches(
    run: TrainingRun, shift: float, most_participations: float
) -> Iterator[Stretch | VaryingStretch]:
    """The stretches that the run admits and that are long enough for the noise.

    The example moves a step by `shift`, and is seen by no more than `most_participations` steps,
    but for a chance of 1e-15.
    """
    bound = gradient_reach(run) / run.sensitivity
    penalty, size = run.loss.regulariser, run.batches.batch_size
    curvature = 1.0 - float(np.max(run.step_size)) * penalty
    if not curvature > 0.0:
        return
    move = 2.0 * bound * up(shift, MILLIONS_OF_ROUNDINGS)
    unit = up(curvature / (shift * size), MILLIONS_OF_ROUNDINGS)  # of gradient, to a unit of length
    lost = 2.0 * run.steps * float(ndtr(-_LARGEST_DEVIATION)) + 2.0 * _LOST_CHANCE
    if not run.batches.exact_size:
        shares, chances = _kept_shares(run)
        kept = float(shares[-1])
        if (
            kept <= _LARGEST_KEPT_SHARE
            and (_LARGEST_DEVIATION + move) / (1.0 - kept) * unit <= bound
        ):
            anew = run.batches.resampling is Resampling.EACH_STEP
            quiet = (1.0 - run.batches.share) ** _QUIET_STEPS if anew else 0.0
            yield VaryingStretch(bound, shares, chances, lost, quiet)
        return
    kept = 1.0 / size
    if not kept <= _LARGEST_KEPT_SHARE:
        return
    noise, moved = 1.0 / math.sqrt(1.0 - kept * kept), move / (1.0 - kept)
    length = (_LARGEST_DEVIATION + move) / (1.0 - kept)
    if length * unit <= bound:
        pulls = (0.0, bound - length * unit) if penalty > 0.0 else (0.0,)
        for pull in pulls:
            yield Stretch(bound, pull, kept, noise, moved, lost)
    noise, moved = math.sqrt(run.steps), move * most_participations
    length = _LARGEST_LAST_DEVIATION * noise + moved
    if penalty == 0.0 and length * unit <= _LONGEST_PASSED_SHARE * bound:
        lost = 4.0 * float(ndtr(-_LARGEST_LAST_DEVIATION)) + 2.0 * _LOST_CHANCE
        yield Stretch(bound, bound - length * unit, kept, noise, moved, lost)


def _kept_shares(run: TrainingRun) -> tuple[Array, Array]:
    """Shares of the past that a step keeps, increasing, and their chances.

    By Bernstein's inequality for the size of a batch; the last holds for all steps together.
    """
    logs = np.append(_CHANCE_LOGS + math.log(2.0), math.log(2.0 * run.steps / _LOST_CHANCE))
    others = run.batches.share * (run.batches.examples - 1)
    off = logs / 3.0 + np.sqrt((logs / 3.0) ** 2 + 2.0 * others * logs)
    size = run.batches.batch_size
    shares = up((off + abs(size - others)) / size, MILLIONS_OF_ROUNDINGS)
    more = np.exp(-_CHANCE_LOGS)
    return shares[1:], np.append(-np.diff(more), more[-1])


def _contracts_in_part(run: TrainingRun) -> str | None:
    span = local_curvatures(run)
    if span is None:
        return "no loss that obeys the description"
    reach = _step(run) * span[1]
    return None if up(reach, FEW_ROUNDINGS) >= 1.0 else f"step_size * smoothness = {reach!r}"


def _no_room(run: TrainingRun) -> str | None:
    span = quadratic_curvatures(run)
    if span is None:
        return "no quadratic that obeys the description"
    if not has_bounded_gradients(run):
        if not run.batches.exact_size:
            return "batches of random size, and gradients of any"
        return None if span[0] < span[1] else f"losses of a single curvature, {span[1]!r}"
    if run.batches.largest_size not in (run.batches.batch_size, run.batches.examples):
        return f"largest_batch={run.batches.largest_size}"
    if not _stretches(run):
        return (
            f"a bound of {_own_shift(run) * run.batches.batch_size:.3g} times the noise of a step"
        )
    return None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/last-step",
        gives="the exact privacy of runs that erase, in one direction, all but the last step",
        covers=rules(Resampling.ONCE, Resampling.EACH_EPOCH, Resampling.EACH_STEP),
        needs=(
            conditions.UNBOUNDED,
            conditions.NOISY,
            Hypothesis("constant steps on convex losses", unsteady, "see lower/quadratic"),
            Hypothesis("step_size * smoothness >= 1", _contracts_in_part, "see lower/quadratic"),
            Hypothesis(
                "losses of more than one curvature, or a bound on gradients far above the noise",
                _no_room,
                "see lower/quadratic",
            ),
        ),
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=last_step_lower_bound,
        gradients=_gradients,
    ),
)
