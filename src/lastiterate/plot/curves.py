"""Pictures of guarantees: epsilon by steps, trade-offs, delta by epsilon, accuracy, shifts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lastiterate import _check
from lastiterate._display import up
from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.bound import BLUE, GREY, VERMILLION, LineStyle
from lastiterate.bounds.fixed_order.convex import ShiftSchedule, worst_schedule
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.errors import InvalidParameter, InvalidType, NoBoundApplies
from lastiterate.plot.style import (
    FAINT,
    INK,
    figure,
    grid,
    heading,
    legends,
    line_styles,
    lines,
    named_mark,
    plain_line_styles,
    scale,
    style,
)
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile, least_misses
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import Schedule
from lastiterate.run.training_run import TrainingRun, if_one_example_is

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LENGTHS, _FURTHER_LENGTHS = 25, 100
_COSTLY_LENGTHS, _COSTLY_FURTHER = 7, 3  # where a point takes seconds
_LOWER = "lower bound"
_RATES = np.concatenate([np.geomspace(1e-5, 0.02, 80), np.linspace(0.021, 0.5, 160)])
_EPSILONS = np.concatenate(
    [
        [0.0],
        np.geomspace(1e-4, 0.02, 60),
        np.linspace(0.021, 12.0, 400),
        np.geomspace(12.1, 600, 80),
    ]
)
Drawable = PrivacyReport | PrivacyProfile | Mapping[str, PrivacyProfile]
_DECADES = 5  # below the delta that is marked
_FURTHEST_SHOWN_EPSILON = 4.0  # in epsilons at that delta
_LEAST_DELTA = 1e-300
_PROFILE_POINTS = 241
Results = Mapping[str, Mapping[float, Sequence[float]]]
_MAX_DRAWN_STEPS = 1_200  # more steps than this are drawn as bands
_LEAST_SHOWN_SHIFT = 1e-6  # of a per-step sensitivity; less is not shown
_MAX_STEMS = 120
_MAX_MARKED_POINTS = 60  # so few points are marked one by one


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
    lengths = usual_steps(run) if steps is None else _check_steps(steps)
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
    points, further = _LENGTHS, _FURTHER_LENGTHS
    if run.batches.resampling is Resampling.EACH_STEP or not NON_CONVEX.unmet(run):
        points, further = _COSTLY_LENGTHS, _COSTLY_FURTHER
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
    """The run with this many steps in place of its own number."""
    _check.count("steps", steps, at_least=1)
    if not (run.is_constant and run.batches.any_length):
        _check.count("steps", steps, at_least=1, at_most=run.steps)
    return run.replace(
        steps=steps,
        batches=run.batches.stopped(steps),
        step_size=_first_steps(run.step_size, steps),
        noise_std=_first_steps(run.noise_std, steps),
    )


def _check_steps(steps: Sequence[int]) -> list[int]:
    if isinstance(steps, (str, bytes)) or not hasattr(steps, "__iter__") or not len(steps):
        raise InvalidType("steps", steps, must_be="one or more whole numbers")
    return sorted({_check.count("steps", one, at_least=1) for one in steps})


def _first_steps(schedule: Schedule, steps: int) -> Schedule:
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


def tradeoff(what: Drawable, *, references: tuple[float, ...] = (0.5, 1.0, 2.0)) -> Figure:
    """The least miss rate of any attacker with each false-alarm rate up to one half.

    Curves are symmetric, so the other half says the same.  Every curve is drawn on the safe
    side: at or below the true one.

    Parameters
    ----------
    what : PrivacyReport, PrivacyProfile or {name: PrivacyProfile}
        A report is drawn with every bound that applies.
    references : tuple of float
        Gaussian mechanisms to compare with, by their mu.
    """
    profiles = named_profiles(what)
    mus = [_check.number("references", mu, at_least=0.0) for mu in references]
    with style():
        canvas = figure(7.2, 4.6)
        axes = canvas.add_subplot()
        axes.set(xlim=(0.0, 0.5), ylim=(0.0, 1.0))
        rates = np.concatenate([[0.0], _RATES])
        dotted, dashed = (0, (1, 1.5)), (0, (3, 2))
        faint: Any = {"color": GREY, "linewidth": 0.9}
        axes.plot(rates, 1.0 - rates, linestyle=dotted, label="nothing learnt", **faint)
        for mu in mus:
            values = [1.0, *map(GaussianProfile(mu).tradeoff, _RATES.tolist())]
            axes.plot(rates, values, linestyle=dashed, label=f"Gaussian, mu = {mu:g}", **faint)
        drawn = line_styles(list(profiles))
        for name, profile in profiles.items():
            line_style = drawn[name]
            values_of = tradeoff_curve(profile, rates)
            looks: Any = {"color": line_style.colour, "linestyle": line_style.dash, "label": name}
            axes.plot(rates, values_of, **looks)
        axes.set_xlabel("false-positive rate", loc="right")
        heading(axes, "least false-negative rate of any attacker")
        grid(axes, "both")
        legends(canvas)
    return canvas


def tradeoff_curve(profile: PrivacyProfile, rates: Array) -> Array:
    """The trade-off curve at all rates, from one evaluation of the delta curve.

    Every epsilon gives a valid lower bound, so a grid of them errs on the safe side.
    """
    allowed = least_misses(rates[:, None], _EPSILONS, profile.deltas(_EPSILONS))
    return np.asarray(np.clip(allowed.max(axis=1), 0.0, 1.0))


def named_profiles(what: Drawable) -> dict[str, PrivacyProfile]:
    """The profiles to draw, by name."""
    if isinstance(what, PrivacyReport):
        return dict(what.all)
    if isinstance(what, PrivacyProfile):
        mu = what.gdp()
        return {f"mu = {mu:.3g}" if math.isfinite(mu) else type(what).__name__: what}
    must_be = "a PrivacyReport, a PrivacyProfile or a dict of name and PrivacyProfile"
    if not isinstance(what, Mapping) or not what:
        raise InvalidType("what", what, must_be=must_be)
    for name, profile in what.items():
        if not isinstance(name, str) or not isinstance(profile, PrivacyProfile):
            raise InvalidType("what", what, must_be=must_be)
    return dict(what)


def delta_by_epsilon(what: Drawable, *, delta: float = 1e-5) -> Figure:
    """delta of every bound at each epsilon, up to where the best is far below `delta`.

    Parameters
    ----------
    what : PrivacyReport, PrivacyProfile or {name: PrivacyProfile}
        A report is drawn with every bound that applies.
    delta : float
        At which the least epsilon is marked.
    """
    profiles = named_profiles(what)
    _check.number("delta", delta, above=_LEAST_DELTA, below=1.0)
    best = min(profile.epsilon(delta) for profile in profiles.values())
    floor, reach = _frame(list(profiles.values()), delta, best)
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        epsilons = np.linspace(0.0, reach, _PROFILE_POINTS)
        scale(axes, "x", epsilons.tolist(), logs=False)
        scale(axes, "y", [floor, 1.0], logs=True)
        drawn = line_styles(list(profiles))
        for name, profile in profiles.items():
            line_style = drawn[name]
            values = profile.deltas(epsilons)
            shown = np.where(values > 0.0, values, math.nan)
            looks: Any = {"color": line_style.colour, "linestyle": line_style.dash, "label": name}
            axes.plot(epsilons, shown, **looks)
        if best <= reach:
            axes.plot([0.0, best], [delta, delta], color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
            axes.plot([best], [delta], "o", ms=5, color=INK, clip_on=False)
            named_mark(axes, best, f"epsilon = {up(best)} at delta = {delta:g}")
        axes.set_xlabel("epsilon", loc="right")
        heading(axes, "delta", marks=True)
        grid(axes)
        legends(canvas)
    return canvas


def _frame(profiles: list[PrivacyProfile], delta: float, best: float) -> tuple[float, float]:
    """The least delta and the largest epsilon to show.

    Epsilon ends where the first curve meets the least delta, so that every curve leaves
    through the right side.  Curves that come to rest above it are given a higher one.
    """
    if not 0.0 < best < math.inf:
        return max(delta * 10.0**-_DECADES, _LEAST_DELTA), 1.0
    for decade in range(_DECADES, 0, -1):
        floor = max(delta * 10.0**-decade, _LEAST_DELTA)
        reach = min(profile.epsilon(floor) for profile in profiles)
        if reach <= _FURTHEST_SHOWN_EPSILON * best:
            return floor, reach
    return max(delta / 10.0, _LEAST_DELTA), 2.0 * best


def accuracy_by_epsilon(results: Results, *, measure: str = "accuracy") -> Figure:
    """Each method's mean over seeds, the seeds as faint dots and two standard errors as a band.

    Parameters
    ----------
    results : mapping
        ``{method: {epsilon: [accuracy of each seed]}}``; epsilons may be text, as in JSON.
    measure : str
        What the numbers are.
    """
    table = _check_results(results)
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        scale(axes, "x", [epsilon for rows in table.values() for epsilon in rows], logs=True)
        lows, highs = [], []
        for name, line_style in plain_line_styles(list(table)).items():
            rows = table[name]
            epsilons = sorted(rows)
            means = np.array([np.mean(rows[epsilon]) for epsilon in epsilons])
            errors = np.array(
                [2.0 * np.std(rows[e], ddof=1) / len(rows[e]) ** 0.5 if len(rows[e]) > 1 else 0.0
                 for e in epsilons]
            )  # fmt: skip
            axes.fill_between(
                epsilons,
                means - errors,
                means + errors,
                color=line_style.colour,
                alpha=0.18,
                linewidth=0,
            )
            axes.plot(
                epsilons,
                means,
                color=line_style.colour,
                linestyle=line_style.dash,
                marker="o",
                ms=3.5,
                label=name,
            )
            seeds = [(e, x) for e in epsilons for x in rows[e]]
            axes.plot(
                *zip(*seeds, strict=True),
                color=line_style.colour,
                alpha=0.35,
                ls="",
                marker=".",
                ms=3,
            )
            lows += [x for _, x in seeds] + (means - errors).tolist()
            highs += [x for _, x in seeds] + (means + errors).tolist()
        room = 0.06 * (max(highs) - min(lows)) or 0.05
        axes.set_ylim(min(lows) - room, max(highs) + room)
        axes.set_xlabel("epsilon (dots: seeds; bands: two standard errors)", loc="right")
        heading(axes, measure)
        grid(axes)
        axes.margins(x=0.02)
        for line in axes.lines:
            line.set_clip_on(False)  # or dots on the edge are halved
        legends(canvas)
    return canvas


def _check_results(results: object) -> dict[str, dict[float, list[float]]]:
    must_be = "{method: {epsilon: [accuracies]}}, with at least one of each"
    if not isinstance(results, Mapping) or not results:
        raise InvalidType("results", results, must_be=must_be)
    table: dict[str, dict[float, list[float]]] = {}
    for name, rows in results.items():
        if not isinstance(rows, Mapping) or not rows:
            raise InvalidType(f"results[{name!r}]", rows, must_be=must_be)
        table[str(name)] = {
            _check_epsilon(epsilon): _seed_values(f"results[{name!r}][{epsilon!r}]", values)
            for epsilon, values in rows.items()
        }
    return table


def _check_epsilon(epsilon: object) -> float:
    if isinstance(epsilon, str):
        try:
            epsilon = float(epsilon)
        except ValueError:
            raise InvalidType("epsilon", epsilon, must_be="a number in (0, inf)") from None
    return _check.number("epsilon", epsilon, above=0.0)


def _seed_values(name: str, values: object) -> list[float]:
    return [float(x) for x in _check.numbers(name, values, at_least=-1e300)]


def shift_schedule(run: TrainingRun) -> Figure:
    r"""The picture of the distance z_k between two runs, and of the shifts a_k that cover it.

    The runs differ in one example.  Each participation of it adds its sensitivity to the distance.
    Steps contract the distance, and the shift a_k reduces it; mu^2 is the sum of the squares of the
    shifts over the noise.  Composition shifts by each sensitivity at once.  Shown for the most
    exposed position in the order, in units of the sensitivity of a step.
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    schedule = drawable_schedule(run)
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


def drawable_schedule(run: TrainingRun) -> ShiftSchedule:
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
    _draw_line(axes, np.arange(float(distance.size)), distance, BLUE, "z: reduced to 0")
    scale(axes, "y", distance.tolist(), logs=False)
    heading(axes, "distance between the two runs, in sensitivities of a step")
    grid(axes)
    if diameter <= axes.get_ylim()[1]:
        axes.axhline(diameter, color=GREY, linestyle=(0, (3, 2)), linewidth=0.9, label="diameter")


def _draw_shifts(axes: Axes, shifts: Array, schedule: ShiftSchedule, *, composed: bool) -> None:
    steps = np.arange(1.0, shifts.size + 1.0)
    visible = np.where(shifts > _LEAST_SHOWN_SHIFT, shifts, math.nan)
    scale(axes, "y", [*visible[np.isfinite(visible)].tolist(), 1.0, 0.2], logs=True)
    bottom = axes.get_ylim()[0]
    added = schedule.sensitivities / schedule.sensitivities.max()
    count = f"{schedule.participations.size:,} " + (
        "participation" if schedule.participations.size == 1 else "participations"
    )
    looks: Any = {"color": GREY}
    looks["label"] = f"{count},\nas composition shifts" if composed else count
    if schedule.participations.size <= _MAX_STEMS:
        axes.vlines(schedule.participations + 1, bottom, added, color=FAINT, linewidth=1.0)
        axes.plot(schedule.participations + 1, added, "o", ms=2.5, clip_on=False, **looks)
    else:
        axes.plot(schedule.participations + 1, added, linewidth=1.0, **looks)
    best = f"a: the best shifts,\nmu = {up(schedule.shifts.mu)}"
    _draw_line(axes, steps, visible, VERMILLION, best)
    heading(axes, "shift in each step, in sensitivities of a step")
    grid(axes)


def _draw_line(axes: Axes, x: Array, y: Array, colour: str, name: str) -> None:
    """A line, or the band of what it covers where steps are finer than can be seen."""
    shown = np.isfinite(y)
    if np.count_nonzero(shown) <= _MAX_MARKED_POINTS:
        axes.plot(x[shown], y[shown], "o", ms=3.0, color=colour, clip_on=False)
    if x.size <= _MAX_DRAWN_STEPS:
        axes.plot(x, y, color=colour, linewidth=1.2, label=name)
        return
    starts = np.unique(np.linspace(0, x.size, _MAX_DRAWN_STEPS, endpoint=False).astype(int))
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    axes.fill_between(x[starts], low, high, color=colour, linewidth=1.0, label=name)
