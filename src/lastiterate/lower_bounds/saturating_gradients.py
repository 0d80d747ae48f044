r"""Bounded gradients that still contract: a stretch on which the others are curved.

The others' loss has curvature :math:`1/\eta - \lambda` there, so that a step takes the whole
stretch to one point; beyond it their gradient is constant, and within its bound.  In units of a
step's noise the stretch may be long, because a bound on gradients is `b r` of these.  With the
example, whose loss is linear, a batch of b keeps 1/b of the past; batches of random size keep what
they vary by.

The iterate may *rest* on the stretch, where the others have no gradient or, against a penalty, one
near its bound.  Without a penalty it may *pass* it, in the last step only, being pulled with nearly
the bound all the way: noise adds up until then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate.lower_bounds.two_statistics import Tails, edges_up_to
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.loss import Gradients, gradient_reach
from lastiterate.run.training_run import TrainingRun

_NEVER_EXCEEDED = 10.0  # standard deviations, in any step
_NOT_AT_THE_END = 8.0  # standard deviations, in one or two
_NEVER = 1e-15
_MOST_KEPT = 0.7
_LONGEST = 0.45  # of the way of a step, for one that passes
_LEVELS = np.arange(36.0)  # minus the logarithms of chances
_QUIET_STEPS = 3


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
        return _saturated(self.bound)

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
        return _saturated(self.bound)

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


def _saturated(bound: float) -> Gradients:
    """The others' are within the bound, beyond the stretch at one end of it."""
    return Gradients(bound, bound - 1.0, (-bound, bound))


def stretches(
    run: TrainingRun, shift: float, most_participations: float
) -> Iterator[Stretch | VaryingStretch]:
    """The stretches that the run admits and that are long enough for the noise.

    The example moves a step by `shift`, and is seen by no more than `most_seen` steps, but for
    a chance of 1e-15.
    """
    bound = gradient_reach(run) / run.sensitivity
    penalty, size = run.loss.regulariser, run.batches.batch_size
    curvature = 1.0 - float(np.max(run.step_size)) * penalty
    if not curvature > 0.0:
        return
    move = 2.0 * bound * up(shift, MILLIONS_OF_ROUNDINGS)
    unit = up(curvature / (shift * size), MILLIONS_OF_ROUNDINGS)  # of gradient, to a unit of length
    lost = 2.0 * run.steps * float(ndtr(-_NEVER_EXCEEDED)) + 2.0 * _NEVER
    if not run.batches.exact_size:
        shares, chances = _kept(run)
        kept = float(shares[-1])
        if kept <= _MOST_KEPT and (_NEVER_EXCEEDED + move) / (1.0 - kept) * unit <= bound:
            anew = run.batches.resampling is Resampling.EACH_STEP
            quiet = (1.0 - run.batches.share) ** _QUIET_STEPS if anew else 0.0
            yield VaryingStretch(bound, shares, chances, lost, quiet)
        return
    kept = 1.0 / size
    if not kept <= _MOST_KEPT:
        return
    noise, moved = 1.0 / math.sqrt(1.0 - kept * kept), move / (1.0 - kept)
    length = (_NEVER_EXCEEDED + move) / (1.0 - kept)
    if length * unit <= bound:
        pulls = (0.0, bound - length * unit) if penalty > 0.0 else (0.0,)
        for pull in pulls:
            yield Stretch(bound, pull, kept, noise, moved, lost)
    noise, moved = math.sqrt(run.steps), move * most_participations
    length = _NOT_AT_THE_END * noise + moved
    if penalty == 0.0 and length * unit <= _LONGEST * bound:
        lost = 4.0 * float(ndtr(-_NOT_AT_THE_END)) + 2.0 * _NEVER
        yield Stretch(bound, bound - length * unit, kept, noise, moved, lost)


def _kept(run: TrainingRun) -> tuple[Array, Array]:
    """Shares of the past that a step keeps, increasing, and their chances.

    By Bernstein's inequality for the size of a batch; the last holds for all steps together.
    """
    logs = np.append(_LEVELS + math.log(2.0), math.log(2.0 * run.steps / _NEVER))
    others = run.batches.share * (run.batches.examples - 1)
    off = logs / 3.0 + np.sqrt((logs / 3.0) ** 2 + 2.0 * others * logs)
    size = run.batches.batch_size
    shares = up((off + abs(size - others)) / size, MILLIONS_OF_ROUNDINGS)
    more = np.exp(-_LEVELS)
    return shares[1:], np.append(-np.diff(more), more[-1])
