"""The payment plan: how far two runs are apart, what is paid of it, and whose noise hides that."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate._digits import up
from lastiterate._numerics.arrays import Array
from lastiterate.bounds.fixed_order.shift_schedule import ShiftSchedule
from lastiterate.plot.shift_plan_plot import drawable
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun

_COLUMNS = 240
_FAINTEST = 1e-9  # of an arrival


def plan(run: TrainingRun) -> dict[str, Any]:
    """For the most exposed place in the order, every distance in arrivals.

    Where steps are finer than columns, the largest value of each column.
    """
    schedule = drawable(run)
    unit = float(schedule.sensitivities.max())
    paid, distance = schedule.shifts.a / unit, schedule.shifts.z[1:] / unit
    arrived = np.zeros(paid.size)
    arrived[schedule.participations] = schedule.sensitivities / unit
    starts = np.unique(np.linspace(0, run.steps, _COLUMNS, endpoint=False).astype(int))
    return {
        "across": "step",
        "x": [*(starts[1:]).tolist(), run.steps],
        "distance": _largest(distance[: run.steps], starts),
        "paid": _largest(paid[: run.steps], starts),
        "arrived": _largest(arrived[: run.steps], starts),
        "paid_on_release": _digits(float(paid[-1])),
        "mu_text": up(schedule.shifts.mu),
        "who": _who(run, schedule),
        "says": _says(run, schedule, float(arrived.sum()), float(paid.sum())),
    }


def _who(run: TrainingRun, schedule: ShiftSchedule) -> list[dict[str, Any]]:
    """The share of mu^2 that falls on the noise of each part of the run, the last part first."""
    noise = np.where(schedule.noise > 0.0, schedule.noise, math.inf)  # where nothing is paid
    squares = (schedule.shifts.a / noise) ** 2
    total = float(squares.sum())
    epoch = run.batches.steps_per_pass
    last, recent = (max(run.steps - many * epoch, 0) for many in (1, 10))
    shares = {
        "noise on the published model": float(squares[run.steps :].sum()),
        "noise of the last epoch": float(squares[last : run.steps].sum()),
        "noise of the nine epochs before": float(squares[recent:last].sum()),
        "noise of all earlier steps": float(squares[:recent].sum()),
    }
    return [
        {"who": who, "share": share / total, "share_text": f"{100.0 * share / total:.3g} %"}
        for who, share in shares.items()
        if share > 0.0
    ]


def _says(run: TrainingRun, schedule: ShiftSchedule, arrived: float, paid: float) -> str:
    many = schedule.participations.size
    times = "once" if many == 1 else f"{many:,} times"
    shrunk = max(0.0, 1.0 - paid / arrived)
    place = "in the most exposed place"
    if run.batches.resampling is not Resampling.NEVER:
        place += " of the worst order (bounds for secret orders average over them)"
    kept = "or the ball cuts off " if math.isfinite(schedule.diameter) else ""
    return (
        f"An example {place} is seen {times}. Steps shrink {kept}{100.0 * shrunk:.3g} % of the "
        f"distance that this brings; noise hides the rest, mu = {up(schedule.shifts.mu)}."
    )


def _largest(values: Array, starts: np.ndarray[Any, Any]) -> list[float]:
    return [_digits(one) for one in np.maximum.reduceat(values, starts).tolist()]


def _digits(value: float) -> float:
    """As many as a picture can show."""
    return float(f"{value:.5g}") if value > _FAINTEST else 0.0
