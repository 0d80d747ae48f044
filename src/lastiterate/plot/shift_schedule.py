"""The picture of the shifts that cover the distance between two runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lastiterate._display import up
from lastiterate._numerics.rounding import Array
from lastiterate.bounds.bound import BLUE, GREY, VERMILLION
from lastiterate.bounds.fixed_order.convex import ShiftSchedule, worst_schedule
from lastiterate.errors import InvalidParameter, InvalidType, NoBoundApplies
from lastiterate.plot.style import FAINT, figure, heading, legends, scale, style
from lastiterate.run.training_run import TrainingRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 1_200  # more steps than this are drawn as bands
_FAINTEST = 1e-6  # of a per-step sensitivity; less is not shown
_MOST_STEMS = 120
_FEW = 60  # so few points are marked one by one


def shift_schedule(run: TrainingRun) -> Figure:
    r"""The picture of the distance z_k between two runs, and of the shifts a_k that cover it.

    The runs differ in one example.  Each participation of it adds its sensitivity to the distance.
    Steps contract the distance, and the shift a_k reduces it; mu^2 is the sum of the squares of the
    shifts over the noise.  Composition shifts by each sensitivity at once.  Shown for the most
    exposed position in the order, in units of the sensitivity of a step.
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    schedule = drawable(run)
    unit = float(schedule.sensitivities.max())
    shifts, distance = schedule.shifts.a / unit, schedule.shifts.z / unit
    if run.release_noise_std == 0.0:
        shifts, distance = shifts[:-1], distance[:-1]
    with style():
        canvas = figure(7.2, 5.2)
        upper, lower = canvas.subplots(2, 1, sharex=True)
        _draw_distance(upper, distance, schedule.diameter / unit)
        composed = bool(np.max(run.noise_std) > 0.0)
        _draw_shifts(lower, shifts, schedule, composed=composed)
        scale(lower, "x", [0.0, float(shifts.size)], logs=False, whole=True)
        lower.set_xlabel(
            "step" if run.release_noise_std == 0.0 else "step, then release", loc="right"
        )
        upper.tick_params(labelbottom=False)
        legends(canvas)
    return canvas


def drawable(run: TrainingRun) -> ShiftSchedule:
    """The shifts of the most exposed position; `InvalidParameter` if there is nothing to show."""
    try:
        schedule = worst_schedule(run)
    except NoBoundApplies as error:
        raise _nothing_to_draw(error) from None
    if not schedule.participations.size or not math.isfinite(schedule.shifts.mu):
        must_be = "one that sees the example, and whose noise can hide it"
        raise InvalidParameter("run", run, must_be=must_be)
    return schedule


def _nothing_to_draw(error: NoBoundApplies) -> InvalidParameter:
    """The error for a run that no single sequence of shifts covers; it may have a guarantee."""
    reasons = dict.fromkeys(str(reasons[0]) for reasons in error.unmet.values())
    must_be = (
        "one whose guarantee comes from a single sequence of shifts, which this picture shows "
        "(`account` may certify it all the same)"
    )
    return InvalidParameter("run", must_be=must_be, found=f"one that {'; and '.join(reasons)}")


def _draw_distance(axes: Axes, distance: Array, diameter: float) -> None:
    _draw(axes, np.arange(float(distance.size)), distance, BLUE, "z: reduced to 0")
    scale(axes, "y", distance.tolist(), logs=False)
    heading(axes, "distance between the two runs, in sensitivities of a step")
    _grid(axes)
    if diameter <= axes.get_ylim()[1]:
        axes.axhline(diameter, color=GREY, linestyle=(0, (3, 2)), linewidth=0.9, label="diameter")


def _draw_shifts(axes: Axes, shifts: Array, schedule: ShiftSchedule, *, composed: bool) -> None:
    steps = np.arange(1.0, shifts.size + 1.0)
    visible = np.where(shifts > _FAINTEST, shifts, math.nan)
    scale(axes, "y", [*visible[np.isfinite(visible)].tolist(), 1.0, 0.2], logs=True)
    bottom = axes.get_ylim()[0]
    added = schedule.sensitivities / schedule.sensitivities.max()
    count = f"{schedule.participations.size:,} " + (
        "participation" if schedule.participations.size == 1 else "participations"
    )
    looks: Any = {"color": GREY}
    looks["label"] = f"{count},\nas composition shifts" if composed else count
    if schedule.participations.size <= _MOST_STEMS:
        axes.vlines(schedule.participations + 1, bottom, added, color=FAINT, linewidth=1.0)
        axes.plot(schedule.participations + 1, added, "o", ms=2.5, clip_on=False, **looks)
    else:
        axes.plot(schedule.participations + 1, added, linewidth=1.0, **looks)
    best = f"a: the best shifts,\nmu = {up(schedule.shifts.mu)}"
    _draw(axes, steps, visible, VERMILLION, best)
    heading(axes, "shift in each step, in sensitivities of a step")
    _grid(axes)


def _draw(axes: Axes, x: Array, y: Array, colour: str, name: str) -> None:
    """A line, or the band of what it covers where steps are finer than can be seen."""
    shown = np.isfinite(y)
    if np.count_nonzero(shown) <= _FEW:
        axes.plot(x[shown], y[shown], "o", ms=3.0, color=colour, clip_on=False)
    if x.size <= _COLUMNS:
        axes.plot(x, y, color=colour, linewidth=1.2, label=name)
        return
    starts = np.unique(np.linspace(0, x.size, _COLUMNS, endpoint=False).astype(int))
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    axes.fill_between(x[starts], low, high, color=colour, linewidth=1.0, label=name)


def _grid(axes: Axes) -> None:
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
