r"""Bounded gradients that forget all the same: a stretch on which the others are curved.

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

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up
from lastiterate.instances.two_statistics import Tails, edges_up_to, gaussian_tails
from lastiterate.run.batches import Drawn
from lastiterate.run.training_run import TrainingRun

_NEVER_EXCEEDED = 10.0  # standard deviations
_NEVER = 1e-15
_MOST_KEPT = 0.7
_LONGEST = 0.25  # of the way of a step, for one that passes
_LEVELS = np.arange(36.0)  # minus the logarithms of chances
_QUIET_STEPS = 3


@dataclass(frozen=True)
class Stretch:
    """What the last step does there; distances in units of its noise.

    In units of the sensitivity the example has the gradient `bound` in our world and 1 less in
    theirs, and the others pull against it with `pull`.  The iterate is at most `width` from the
    middle, but for a chance of `lost`.  The step keeps a share of that, at most `shares` with these
    `chances`; the last is never exceeded.
    """

    bound: float
    pull: float
    width: float
    shares: Array
    chances: Array
    lost: float

    def tails(self, ours: float, theirs: float, spread: float) -> Tails:
        """Of the place after a step that the example moves by `ours` or by `theirs`.

        `spread` is the noise of the step and of the release together.
        """
        left = up(float(self.shares[-1]) * self.width, MILLIONS_OF_ROUNDINGS)
        means = ((ours - left) / spread, (theirs + left) / spread)
        return gaussian_tails(edges_up_to(ours / spread), means, lost=self.lost)


@dataclass(frozen=True)
class VaryingStretch(Stretch):
    """Batches vary in size, so that every step keeps some of the noise and moves before it.

    Whether these were any is independent of all else: with a chance of `quiet` there was none in
    the last few steps.
    """

    quiet: float = 0.0

    def tails(self, ours: float, theirs: float, spread: float) -> Tails:
        kept = float(self.shares[-1])
        edges = edges_up_to(ours / spread)
        spreads = np.sqrt(spread**2 + self.shares**2 / (1.0 - kept**2))[:, None]

        def above(mean: float, earlier: float, *, rounded_up: bool) -> Array:
            moved = abs(earlier) / (1.0 - kept) * (1.0 if rounded_up else -1.0)
            total = np.zeros(edges.size)
            for chance, faded in ((self.quiet, kept**_QUIET_STEPS), (1.0 - self.quiet, 1.0)):
                ahead = (mean + self.shares * moved * faded)[:, None] - edges * spread
                either = np.stack([ahead / spread, ahead / spreads])
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


def stretches(run: TrainingRun, arrival: float, most_seen: float) -> Iterator[Stretch]:
    """Those that the run admits, if none is too short for the noise.

    The example moves a step by `arrival`, and is seen by no more than `most_seen` steps, but for
    a chance of 1e-15.
    """
    bound = 1.0 if run.adjacency == "zero-out" else 0.5  # the others keep within the sensitivity
    forgets = 1.0 - float(np.max(run.step_size)) * run.loss.regulariser
    size, exact = run.batches.batch_size, run.batches.exact_size
    shares, chances = (np.array([1.0 / size]), np.ones(1)) if exact else _kept(run)
    kept = float(shares[-1])
    if not (forgets > 0.0 and kept <= _MOST_KEPT):
        return
    move = 2.0 * bound * up(arrival, MILLIONS_OF_ROUNDINGS)
    unit = up(forgets / (arrival * size), MILLIONS_OF_ROUNDINGS)  # of gradient, to a unit of width
    lost = 2.0 * run.steps * float(ndtr(-_NEVER_EXCEEDED)) + 2.0 * _NEVER
    rests = (_NEVER_EXCEEDED + move) / (1.0 - kept)
    if rests * unit <= bound:
        if not exact:
            quiet = (1.0 - run.batches.share) ** _QUIET_STEPS
            anew = run.batches.drawn is Drawn.EACH_STEP
            yield VaryingStretch(bound, 0.0, rests, shares, chances, lost, quiet if anew else 0.0)
            return
        yield Stretch(bound, 0.0, rests, shares, chances, lost)
        if run.loss.regulariser > 0.0:
            yield Stretch(bound, bound - rests * unit, rests, shares, chances, lost)
    passes = _NEVER_EXCEEDED * math.sqrt(run.steps) + move * most_seen
    if exact and run.loss.regulariser == 0.0 and passes * unit <= _LONGEST * bound:
        yield Stretch(bound, bound - passes * unit, passes, shares, chances, lost)


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
