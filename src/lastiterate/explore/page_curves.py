"""Data of the page's pictures: epsilon curves, the attacker's trade-off, the shift schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lastiterate._display import down, short, up
from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.catalogue import CATALOGUE, PUBLISHED, given_order
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.bounds.fixed_order.shift_schedule import ShiftSchedule
from lastiterate.errors import InvalidParameter, NoBoundApplies
from lastiterate.plot.epsilon_curves import stopped
from lastiterate.plot.shift_schedule_plot import drawable
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.profile.tradeoff import least_misses
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning import unlearning

REMOVED = "removed examples"
_POINTS, _SECRET_POINTS, _COSTLY_POINTS = 11, 7, 5
_LONGER, _COSTLY_LONGER = 10, 3
_NOISIER = 4.0
_RATES = np.concatenate([[0.0], np.geomspace(1e-4, 0.02, 16), np.linspace(0.03, 0.5, 48)])
_SHARES = np.concatenate([[0.0], np.geomspace(0.03, 1.2, 12)])  # of the reported epsilon
_LARGEST = 40.0

Curve = dict[str, Any]


def by_epochs(run: TrainingRun, *, delta: float, draft: bool = False) -> Curve:
    """Every bound's epsilon if the run had stopped earlier or gone on."""
    if not (run.is_constant and run.batches.any_length):
        raise InvalidParameter("run", must_be="one that can go on", found="one that ends")
    longer = _COSTLY_LONGER if _is_costly(run) else _LONGER
    epoch = run.batches.steps_per_pass
    first, last = min(epoch, max(1, run.steps // longer)), min(run.steps * longer, 2**53)
    grid = np.geomspace(first, last, _points(run))
    lengths = sorted({_whole_epochs(x, epoch) for x in grid.tolist()} | {run.steps})
    return {
        "across": "epochs",
        "x": [steps / epoch for steps in lengths],
        "here": run.steps / epoch,
        "curves": _by(lengths, lambda steps: stopped(run, steps), delta, draft=draft),
    }


def _whole_epochs(steps: float, epoch: int) -> int:
    """The nearest whole number of epochs, in steps; below one epoch, the nearest number of steps.

    Some runs that end within an epoch are worse than both of their neighbours.
    """
    return max(1, round(steps)) if steps < epoch else epoch * round(steps / epoch)


def by_noise(run: TrainingRun, *, delta: float, draft: bool = False) -> Curve:
    """Every bound's epsilon with less and with more noise in each step."""
    if not run.is_constant or run.noise_std == 0.0:
        raise InvalidParameter("noise_std", must_be="one positive number", found="something else")
    points = _points(run)
    factors = np.geomspace(1.0 / _NOISIER, _NOISIER, points).tolist()
    factors[points // 2] = 1.0
    noise = float(run.noise_std)  # type: ignore[arg-type]  # constant
    shown = run.noise_multiplier if run.noise_multiplier is not None else noise
    return {
        "across": "noise_std" if run.noise_multiplier is None else "noise_multiplier",
        "x": [float(shown) * factor for factor in factors],  # type: ignore[arg-type]  # constant
        "here": shown,
        "curves": _by(
            factors, lambda factor: run.replace(noise_std=noise * factor), delta, draft=draft
        ),
    }


def by_extra_steps(run: TrainingRun, *, delta: float) -> Curve:
    """Epsilon of unlearning by numbers of extra steps, from one to the number of training steps."""
    points = _POINTS if run.batches.resampling is Resampling.NEVER else _COSTLY_POINTS
    grid = np.geomspace(1, run.steps, points)
    lengths = sorted({round(x) for x in grid.tolist()})
    epsilons = [
        unlearning(run, extra_steps=steps).epsilon(delta) for steps in track("unlearning", lengths)
    ]
    return {"across": "extra_steps", "x": lengths, "here": None, "curves": {REMOVED: epsilons}}


def tradeoff(report: PrivacyReport, *, delta: float) -> Curve:
    """The least false-negative rate of any attacker, by the bound that answers and by composition.

    Every epsilon gives a valid value, so a coarse grid errs on the safe side.
    """
    best = report.bound_at(delta)
    curves = {best: _misses(report.all[best], report.epsilon(delta))}
    composed = composition(report, delta)
    if composed is not None and composed != best:
        profile = report.all[composed]
        curves[composed] = _misses(profile, profile.epsilon(delta))
    return {
        "across": "false-positive rate",
        "x": _RATES.tolist(),
        "curves": curves,
        "best": best,
        "rounded": {
            "false_positives": [short(rate) for rate in _RATES.tolist()],
            "false_negatives": [down(one) for one in curves[best]],
        },
        "advantage": up(report.all[best].advantage()),
    }


def composition(report: PrivacyReport, delta: float) -> str | None:
    """The id of the least composition bound that applies, as standard accountants use; or None."""
    ids = [id_ for id_ in report.used if id_.startswith("composition/")]
    return min(ids, key=lambda id_: report.used[id_].epsilon(delta), default=None)


def _misses(profile: PrivacyProfile, epsilon: float) -> list[float]:
    epsilons = _SHARES * min(epsilon, _LARGEST)
    allowed = least_misses(_RATES[:, None], epsilons, profile.deltas(epsilons))
    misses: list[float] = np.clip(allowed.max(axis=1), 0.0, 1.0).tolist()
    return misses


def _points(run: TrainingRun) -> int:
    if _is_costly(run):
        return _COSTLY_POINTS
    return _POINTS if run.batches.resampling is Resampling.NEVER else _SECRET_POINTS


def _is_costly(run: TrainingRun) -> bool:
    return run.batches.resampling is Resampling.EACH_STEP or not NON_CONVEX.unmet(run)


def _by(
    where: list[Any], changed: Callable[[Any], TrainingRun], delta: float, *, draft: bool
) -> dict[str, list[float | None]]:
    """Epsilons by bound id; None where the bound does not apply."""
    # A curve takes many accounts, so a draft uses the bounds that hold for every order.
    drafted = [id_ for id_ in given_order() if id_ in CATALOGUE and not id_.startswith(PUBLISHED)]
    points: list[dict[str, float]] = []
    for one in track("drawing", where):
        try:
            used = account(changed(one), bounds=drafted if draft else None).used
        except NoBoundApplies:
            used = {}
        points.append({id_: profile.epsilon(delta) for id_, profile in used.items()})
    ids = sorted(dict.fromkeys(id_ for point in points for id_ in point), key=_rank)
    return {id_: [_known(point.get(id_)) for point in points] for id_ in ids}


def _known(epsilon: float | None) -> float | None:
    return None if epsilon is None or math.isnan(epsilon) else epsilon


def _rank(id_: str) -> int:
    return list(CATALOGUE).index(id_)


_COLUMNS = 240
_FAINTEST = 1e-9  # of the per-step sensitivity


def shift_schedule(run: TrainingRun) -> dict[str, Any]:
    """The shift schedule of the most exposed position, in units of the per-step sensitivity.

    Where there are more steps than columns, it has the largest value of each column.
    """
    schedule = drawable(run)
    unit = float(schedule.sensitivities.max())
    shifts, distance = schedule.shifts.a / unit, schedule.shifts.z[1:] / unit
    sensitivity = np.zeros(shifts.size)
    sensitivity[schedule.participations] = schedule.sensitivities / unit
    starts = np.unique(np.linspace(0, run.steps, _COLUMNS, endpoint=False).astype(int))
    return {
        "across": "step",
        "x": [*(starts[1:]).tolist(), run.steps],
        "distance": _largest(distance[: run.steps], starts),
        "shift": _largest(shifts[: run.steps], starts),
        "sensitivity": _largest(sensitivity[: run.steps], starts),
        "shift_on_release": _digits(float(shifts[-1])),
        "mu_text": up(schedule.shifts.mu),
        "noise_shares": _noise_shares(run, schedule),
        "says": _says(run, schedule, float(sensitivity.sum()), float(shifts.sum())),
    }


def _noise_shares(run: TrainingRun, schedule: ShiftSchedule) -> list[dict[str, Any]]:
    """The share of mu^2 that falls on the noise of each part of the run, the last part first."""
    noise = np.where(schedule.noise > 0.0, schedule.noise, math.inf)  # where the shift is 0
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
        {"noise": part, "share": share / total, "share_text": f"{100.0 * share / total:.3g} %"}
        for part, share in shares.items()
        if share > 0.0
    ]


def _says(run: TrainingRun, schedule: ShiftSchedule, sensitivity: float, shifted: float) -> str:
    many = schedule.participations.size
    times = "once" if many == 1 else f"{many:,} times"
    shrunk = max(0.0, 1.0 - shifted / sensitivity)
    position = "in the most exposed position"
    if run.batches.resampling is not Resampling.NEVER:
        position += " of the worst order (bounds for secret orders average over positions)"
    kept = "or the ball cuts off " if math.isfinite(schedule.diameter) else ""
    return (
        f"An example {position} participates {times}. Steps contract {kept}{100.0 * shrunk:.3g} % "
        "of the distance that this adds; noise hides the rest, with mu = "
        f"{up(schedule.shifts.mu)}."
    )


def _largest(values: Array, starts: np.ndarray[Any, Any]) -> list[float]:
    return [_digits(one) for one in np.maximum.reduceat(values, starts).tolist()]


def _digits(value: float) -> float:
    """The value rounded to what a picture can show."""
    return float(f"{value:.5g}") if value > _FAINTEST else 0.0
