r"""Runs of constant steps whose batches are drawn in secret, on losses of one curvature.

The example in question moves a step that sees it by :math:`g\,\eta L/b`, where g is `ours` in one
world and `theirs`, 1 less, in the other.  Every step keeps c = 1 - `gap` of the past, so that the
last iterate is Gaussian around :math:`g\,(\eta L/b) \sum c^{age}` over the steps that see it, and
these stay hidden.
"""

import math
from collections.abc import Callable

from lastiterate._numerics import powers as geometric
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up
from lastiterate.lower_bounds.geometric_draws import (
    HiddenSteps,
    drawn_each_epoch,
    drawn_each_step,
    drawn_once,
)
from lastiterate.lower_bounds.participation import left_out, probability_of_a_step
from lastiterate.lower_bounds.smoothed_sums import threshold_profile
from lastiterate.profile.lower import BestLowerProfile
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from lastiterate.run.loss import linear_gradients
from lastiterate.run.training_run import TrainingRun

_OTHER_GAPS = 3


def unsteady(run: TrainingRun) -> str | None:
    """Why a run is not one of these; None if it is."""
    rule = run.batches
    if rule.resampling is Resampling.NEVER:
        return "a fixed order"
    if rule.resampling is Resampling.EACH_FEW_EPOCHS:
        return "steps of several epochs that are drawn together"
    if not run.is_constant:
        return "a schedule"
    if not run.loss.convex:
        return "convex=False"
    if rule.resampling is Resampling.ONCE and rule.period != rule.batches_per_epoch:
        return "positions that return at different times"
    return None


def hidden_steps(run: TrainingRun, gap: float) -> HiddenSteps:
    """The steps that see an example, with the weight that each has in the end."""
    return _BY_CHANCE[run.batches.resampling](run.batches, gap, run.steps)


def shift_over_deviation(run: TrainingRun, gap: float) -> float:
    """(eta L/b) over the standard deviation of the last iterate, rounded down."""
    step, noise = float(run.step_size), float(run.noise_std)  # type: ignore[arg-type]  # no schedule
    log_c = geometric.log_of(gap)
    squares = up(geometric.sum_of_powers(2.0 * log_c, run.steps), MILLIONS_OF_ROUNDINGS)
    deviation = math.hypot(step * noise * math.sqrt(squares), run.release_noise_std)
    return down(step * run.sensitivity / run.batches.batch_size / deviation, MILLIONS_OF_ROUNDINGS)


def steady_profile(run: TrainingRun, curvatures: tuple[float, float]) -> BestLowerProfile:
    """The most exposed curvature between these: the least, or one that erases earlier steps."""
    step = float(run.step_size)  # type: ignore[arg-type]  # no schedule
    least, most = (min(step * one, 1.0) for one in curvatures)
    gaps = {least, *(max(most * 10.0**-k, least) for k in range(_OTHER_GAPS))}
    profiles = []
    for gap in sorted(gaps) if most > least else [least]:
        whole, unit = hidden_steps(run, gap).whole, shift_over_deviation(run, gap)
        for gradients in linear_gradients(run):
            ours, theirs = gradients.moves(exact_size=run.batches.exact_size)
            profiles.append(threshold_profile(whole, unit * ours, unit * theirs))
    return BestLowerProfile(tuple(profiles))


def _each(rule: BatchRule) -> float:
    """The probability of each position."""
    return (1.0 - left_out(rule)) / rule.batches_per_epoch


def _once(rule: BatchRule, gap: float, steps: int) -> HiddenSteps:
    return drawn_once(gap, steps, rule.batches_per_epoch, _each(rule))


def _each_epoch(rule: BatchRule, gap: float, steps: int) -> HiddenSteps:
    return drawn_each_epoch(gap, steps, rule.batches_per_epoch, _each(rule))


def _each_step(rule: BatchRule, gap: float, steps: int) -> HiddenSteps:
    return drawn_each_step(gap, steps, probability_of_a_step(rule))


_BY_CHANCE: dict[Resampling, Callable[[BatchRule, float, int], HiddenSteps]] = {
    Resampling.ONCE: _once,
    Resampling.EACH_EPOCH: _each_epoch,
    Resampling.EACH_STEP: _each_step,
}
