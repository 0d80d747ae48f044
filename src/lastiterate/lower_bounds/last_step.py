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
that is erased, on a stretch that is long beside the noise (`stretch`); the example's own loss is
linear, with a share of its slope in each direction.  In a batch of exact size it replaces another
example, which may pull the other way.
"""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, MILLIONS_OF_ROUNDINGS, down, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.saturating_gradients import Stretch, VaryingStretch, stretches
from lastiterate.lower_bounds.stationary_quadratics import (
    hidden_steps,
    shift_over_deviation,
    unsteady,
)
from lastiterate.lower_bounds.two_statistics import (
    edges_up_to,
    gaussian_tails,
    two_statistics_profile,
)
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import (
    Gradients,
    has_bounded_gradients,
    linear_gradients,
    local_curvatures,
    quadratic_curvatures,
)
from lastiterate.run.training_run import TrainingRun

_SHARES = (0.0, 0.4)  # of the slope, along the direction that remembers


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
        return BestLowerProfile((_travelling(run),))
    return BestLowerProfile(tuple(_held(run)))


def _travelling(run: TrainingRun) -> LowerProfile:
    span = quadratic_curvatures(run)
    assert span is not None
    gap = _step(run) * span[0]
    own = _own_shift(run) / _spread(run)
    factors = (shift_over_deviation(run, gap), 0.0)
    tails = gaussian_tails(edges_up_to(own), (own, 0.0))
    return two_statistics_profile(hidden_steps(run, gap), factors, tails, last_in_sum=False)


def _held(run: TrainingRun) -> Iterator[LowerProfile]:
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
    """L/(b sigma), rounded down: both worlds scaled alike are the same result, told less well."""
    noise = float(np.max(run.noise_std))
    return down(run.sensitivity / run.batches.batch_size / noise, MILLIONS_OF_ROUNDINGS)


def _spread(run: TrainingRun) -> float:
    """The noise of the last step and of the release, in units of the former."""
    return math.hypot(1.0, run.release_noise_std / (_step(run) * float(np.max(run.noise_std))))


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
