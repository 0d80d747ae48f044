r"""Lower bounds from examples whose gradients turn as training goes on.

**Instances.** Losses may look different wherever the iterate is.  One coordinate is a clock: all
examples push it along by a common linear term, so far that at every step it is known where it
stands, up to noise that does not matter on its scale.  Everything else may depend on it, on a
scale so long that mixed derivatives vanish in the limit.  So at every step and in every other
coordinate the common curvature :math:`\kappa` can be any that is admitted, the step's factor
:math:`1 - \eta\kappa`; and the two examples' losses differ from what is common by
:math:`\pm\frac L2\langle u, x\rangle` (cut off far away, where it bends as slowly as one likes), u
any unit vector for that step.  The results of every such *design* are limits of results of runs
as described, so that no guarantee for all of these can be below them.

**Design.** Take numbers :math:`0 < \lambda_1 \le \lambda_2 \le \dots`, one for each participation
i, in step :math:`k_i`, and as many coordinates.  Coordinate j is kept quiet (the least factor, in
size) up to step :math:`k_j`, and is kept (the largest, c) after it.  Participation i points to

.. math:: u_i = \frac1{\lambda_i}(g_1, \dots, g_i, 0, \dots), \qquad
          g_j = \sqrt{\lambda_j^2 - \lambda_{j-1}^2}, \quad |u_i| = 1 .

In units of the end, :math:`s_i = \eta_{k_i}\frac Lb\prod_{j>k_i}c_j` arrives and
:math:`w_k = (\eta_k\sigma_k)^2\prod_{j>k}c_j^2` is the noise of a step, so that the results are
Gaussian, coordinate by coordinate, and apart by

.. math:: \mu^2 = \sum_j g_j^2 \frac{\big(\sum_{i\ge j} s_i/\lambda_i\big)^2}
                  {\sum_{k\ge k_j} w_k + \text{what is left of the noise before}} .

**Why it is exact.** Let :math:`\lambda_i` be the slopes of the convex minorant of arrivals over
noise.  On a face of slope :math:`\lambda` the arrivals are :math:`\lambda` times the noise, W, so
with nothing left over coordinate j has :math:`g_j^2\sum_{i\ge j}W_i`, and the sum over j is
:math:`\sum_i W_i\lambda_i^2`: the energy of the minorant, which is the upper bound of
`engine.shifts`.  Quiet means silent, and nothing is left over, where a factor of 0 is admitted:
:math:`\eta M \ge 1`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from lastiterate._numerics.exact import Array
from lastiterate._numerics.scan import suffix_products, suffix_sums
from lastiterate.bounds import steps as terms
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.bounds.lower import admitted_curvatures
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.run.batches import Cyclic, FixedOrder, FullBatch
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_DOWN = 1.0 - 1e-9
_MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Course:
    """A run in units of its end: what arrives in each step, its noise (and the release's, at the
    end), and what is then left of the noise before it in a coordinate that was kept quiet.
    """

    arrivals: Array
    noise: Array
    left_over: Array

    @cached_property
    def later_noise(self) -> Array:
        """Of each step and all after it."""
        return suffix_sums(self.noise)

    def mu(self, starts: NDArray[np.intp], masses: Array) -> float:
        """Of participations that bring `masses`, in the order of `starts`.

        The coordinate that begins with a participation is kept from its entry of `starts` on.
        """
        hidden = self.later_noise[starts] + self.left_over[starts]
        told = (masses > 0.0) & (hidden > 0.0)  # else units underflow, and nothing is made of it
        starts, masses, hidden = starts[told], masses[told], hidden[told]
        if not starts.size:
            return 0.0
        between = np.add.reduceat(self.noise, starts)
        between -= np.diff(self.left_over[starts], append=0.0)
        between = np.maximum(between, 1e-12 * hidden)  # any rates are a valid design
        rates = isotonic_regression(masses / between, weights=between).x
        turned = np.diff(np.square(rates), prepend=0.0)
        reached = np.cumsum((masses / rates)[::-1])[::-1]
        return math.sqrt(float(np.sum(turned * np.square(reached) / hidden))) * _DOWN


def turning_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""An example whose gradient turns, so that what it did early and late is told apart.

    **Bound.** The exact curve of the design above with the convex minorant's slopes, for the most
    exposed position.

    **Holds when.** the order is fixed, some step factors differ (smoothness above strong
    convexity), nothing bounds single gradients, one example is replaced by another, and the
    domain is unbounded.

    **Tight.** Equal to `fixed-order/contractive` and, for smooth losses, to
    `fixed-order/non-convex` where :math:`\eta M \ge 1`: there these cannot be improved without
    knowing more of the losses.

    **Source.** This library; the upper bounds' is Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** isotonic regression and running sums; rounded down.
    """
    course = _course(run)
    if course is None:
        return MeansLowerProfile([1.0], [0.0])
    mus = (course.mu(seen, course.arrivals[seen]) for seen in terms.patterns(run))
    return MeansLowerProfile([1.0], [max(mus, default=0.0)])


def _course(run: TrainingRun) -> Course | None:
    span = admitted_curvatures(run)
    assert span is not None
    factors = 1.0 - terms.step_sizes(run)[:, None] * np.array(span)
    largest = terms.every_step(np.abs(factors).max(axis=1), run.steps)
    crossed = (factors.min(axis=1) <= 0.0) & (factors.max(axis=1) >= 0.0)
    least = np.where(crossed, 0.0, np.abs(factors).min(axis=1))
    noise = terms.every_step(terms.noises(run), run.steps)
    with np.errstate(all="ignore"):
        reach = suffix_products(largest)
        arrivals = reach * terms.every_step(terms.arrivals(run), run.steps)
        everything = np.append(np.square(noise * reach), terms.release_noise(run) ** 2)
        left = np.square(reach) * _quiet(terms.every_step(least, run.steps), noise)
    finite = all(np.isfinite(x).all() for x in (arrivals, everything, left))
    return Course(arrivals, everything, left) if finite else None


def _quiet(least: Array, noise: Array) -> Array:
    """What each step leaves of the noise before it, in a coordinate that was always quiet."""
    if not least.any():
        return np.zeros(least.size)
    kept, added = np.square(least).tolist(), np.square(noise).tolist()
    before = accumulate(
        zip(kept, added, strict=True), lambda v, step: step[0] * v + step[1], initial=0.0
    )
    return np.asarray(np.square(least) * np.array(list(before)[:-1]))


def _no_turn(run: TrainingRun) -> str | None:
    if run.adjacency != "replace":
        return f"adjacency={run.adjacency!r}"
    if run.gradient_bound is not None:
        return f"gradients of at most {run.gradient_bound!r}"
    span = admitted_curvatures(run)
    if span is None or not span[0] < span[1]:
        return f"{run.loss!r}"
    return None


def _bounded(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


def _long(run: TrainingRun) -> str | None:
    return f"steps={run.steps}" if run.steps > _MOST_STEPS else None


BOUNDS = (
    LowerBound(
        id="lower/turning",
        gives="the exact privacy of examples whose gradients turn as training goes on",
        covers=(FullBatch, Cyclic, FixedOrder),
        needs=(
            Hypothesis("an unbounded domain", _bounded, "see published/bok-su-altschuler"),
            Hypothesis(
                "losses whose gradients may turn: smooth, of any gradient, one being replaced",
                _no_turn,
                "see lower/quadratic",
            ),
            Hypothesis(f"at most {_MOST_STEPS} steps", _long, "shorten the run"),
        ),
        source=Citation("lastiterate", 2026, "Tightness of the engine", "docs, tightness"),
        evaluate=turning_lower_bound,
    ),
)
