"""Epsilon as training goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate._progress import track
from lastiterate.accounting import account
from lastiterate.bounds.bound import GREY, LineStyle
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.errors import InvalidType, NoBoundApplies
from lastiterate.plot.named_lines import lines
from lastiterate.plot.style import line_styles
from lastiterate.privacy_report import PrivacyReport
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import Schedule
from lastiterate.run.training_run import TrainingRun, if_one_example_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS, _FURTHER = 25, 100
_COSTLY_POINTS, _COSTLY_FURTHER = 7, 3  # where a point takes seconds
_LOWER = "lower bound"


def epsilon_by_steps(
    run: TrainingRun,
    *,
    bounds: str | list[str] | None = None,
    delta: float = 1e-5,
    steps: Sequence[int] | None = None,
) -> Figure:
    """Every bound's epsilon at `delta`, had the run been stopped after each of `steps`.

    Schedules and `FixedOrder` are known up to the end of the run only; others are continued.
    The lower bound is drawn where all bounds are, and curves have a gap where a bound does
    not apply or is not finite.

    Parameters
    ----------
    run : TrainingRun
        What was done.
    bounds : str or list of str, optional
        Ids or families, as for `account`; None is all certified bounds.
    delta : float
        Of (epsilon, delta)-DP.
    steps : sequence of int, optional
        From an epoch on to 100 times the run; where batches are drawn anew or steps may expand,
        which takes longer, fewer and to 3 times the run.
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    _check.number("delta", delta, at_least=0.0, at_most=1.0)
    lengths = usual_steps(run) if steps is None else _given(steps)
    curves = _curves(run, lengths, bounds, delta)
    drawn = line_styles([name for name in curves if name != _LOWER]) | {
        _LOWER: LineStyle(GREY, (0, (1, 1)))
    }
    here = len(lengths) > 1 and run.steps in lengths
    counted = f"{run.steps:,} {'step' if run.steps == 1 else 'steps'}"
    condition = if_one_example_is(run.adjacency, run.examples_per_person)
    return lines(
        lengths,
        curves,
        across="steps",
        up=f"epsilon at delta = {delta:g} {condition}",
        line_styles=drawn,
        mark=(float(run.steps), f"this run: {counted}") if here else None,
        undotted=(_LOWER,),
    )


def usual_steps(run: TrainingRun) -> list[int]:
    """A geometric grid from an epoch to well beyond the run, which is one of them.

    Whole epochs where these are drawn anew.
    """
    epoch = run.batches.batches_per_epoch
    points, further = _POINTS, _FURTHER
    if run.batches.resampling is Resampling.EACH_STEP or not NON_CONVEX.unmet(run):
        points, further = _COSTLY_POINTS, _COSTLY_FURTHER
        epoch = max(1, run.steps // 10)
    if not (run.is_constant and run.batches.any_length):
        further = 1
    first, last = min(epoch, run.steps), min(run.steps * further, 2**53)
    if first == last:
        first = 1
    grid = [round(x) for x in np.geomspace(first, last, points).tolist()]
    if run.batches.resampling in (Resampling.EACH_EPOCH, Resampling.EACH_FEW_EPOCHS):
        # A last epoch that is cut costs a little more than a whole one: no teeth in the curve.
        whole = run.batches.steps_per_draw
        grid = [max(round(x / whole), 1) * whole if x > whole else x for x in grid]
    return sorted({x for x in grid if x <= last} | {run.steps})


def stopped(run: TrainingRun, steps: int) -> TrainingRun:
    """The run with so many steps in place of its own number."""
    _check.count("steps", steps, at_least=1)
    if not (run.is_constant and run.batches.any_length):
        _check.count("steps", steps, at_least=1, at_most=run.steps)
    return run.replace(
        steps=steps,
        batches=run.batches.stopped(steps),
        step_size=_cut(run.step_size, steps),
        noise_std=_cut(run.noise_std, steps),
    )


def _given(steps: Sequence[int]) -> list[int]:
    if isinstance(steps, (str, bytes)) or not hasattr(steps, "__iter__") or not len(steps):
        raise InvalidType("steps", steps, must_be="one or more whole numbers")
    return sorted({_check.count("steps", one, at_least=1) for one in steps})


def _cut(schedule: Schedule, steps: int) -> Schedule:
    return schedule[:steps] if isinstance(schedule, tuple) else schedule


def _curves(
    run: TrainingRun, lengths: list[int], bounds: str | list[str] | None, delta: float
) -> dict[str, list[float]]:
    reports: list[PrivacyReport | None] = []
    refused: NoBoundApplies | None = None
    for steps in track("every length", lengths):
        try:
            reports.append(account(stopped(run, steps), bounds=bounds))
        except NoBoundApplies as error:
            reports.append(None)
            refused = error
    ids = list(dict.fromkeys(id_ for report in reports if report for id_ in report.all))
    if not ids and refused is not None:
        raise refused
    curves = {
        id_: [
            report.all[id_].epsilon(delta) if report and id_ in report.all else math.nan
            for report in reports
        ]
        for id_ in ids
    }
    if bounds is None:
        lower = [report.lower.epsilon(delta) if report else math.nan for report in reports]
        if max(lower, default=0.0) > 0.0:
            curves[_LOWER] = [value if value > 0.0 else math.nan for value in lower]
    return curves
