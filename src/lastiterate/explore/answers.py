"""Answers to the page's questions: one function for each, from a JSON record to a JSON record.

They cover the account of a run, its pictures (epsilon curves, the attacker's trade-off, the shift
schedule), changes that would lower epsilon, each of them accounted, and certificates.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate._display import down, mu, short, times, up
from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.bounds.catalogue import CATALOGUE, PUBLISHED, RECORDS, given_order
from lastiterate.bounds.fixed_order.convex import ShiftSchedule
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.calibration import calibrate
from lastiterate.certificate.fields import on_trust
from lastiterate.certificate.verify import verified_certificate
from lastiterate.errors import (
    InvalidCertificate,
    InvalidParameter,
    InvalidType,
    LastIterateError,
    NoBoundApplies,
)
from lastiterate.explore.page_runs import (
    MODELS,
    STATED,
    as_code,
    description,
    page_words,
    run_from_page,
)
from lastiterate.plot.curves import drawable_schedule, stopped
from lastiterate.profile.profile import PrivacyProfile, least_misses
from lastiterate.report.sentences import (
    certainty_text,
    fitted_steps_text,
    lower_bound_text,
    refusals,
    run_sentence,
    why_least,
)
from lastiterate.report.summary import ranked, summary, training_alone_text, with_inf_as_text
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.serialise import unambiguous_json
from lastiterate.run.training_run import TrainingRun, if_one_example_is
from lastiterate.train.noise import REPRODUCIBLE
from lastiterate.unlearn.unlearning import unlearning

_UNCHECKED = "to which model it belongs: `lastiterate verify folder` checks that too"
Record = Mapping[str, Any]
Answer = dict[str, Any]
_CACHED_REPORTS = 32
_CURVE_AXES = ("epochs", "noise", "extra_steps")
_OF_A_RUN = ("run", "delta")
QUESTION_KEYS: dict[str, tuple[str, ...]] = {
    "account": (*_OF_A_RUN, "draft"),
    "lower_bound": _OF_A_RUN,
    "curve": (*_OF_A_RUN, "over", "draft"),
    "tradeoff": (*_OF_A_RUN, "draft"),
    "plan": _OF_A_RUN,
    "calibrate": (*_OF_A_RUN, "epsilon", "over"),
    "unlearning": (*_OF_A_RUN, "epsilon", "extra_steps", "examples"),
    "remedies": _OF_A_RUN,
    "verify": ("certificate",),
    "code": _OF_A_RUN,
    "report": _OF_A_RUN,
}
_WORTH_LISTING = 0.99  # of the present epsilon
_MORE_NOISE, _FEWER_EPOCHS, _SMALL_PENALTY, _RELEASE = 1.5, 0.5, 0.001, 4.0
REMOVED = "removed examples"
_POINTS, _SECRET_POINTS, _COSTLY_POINTS = 11, 7, 5
_LENGTH_FACTOR, _COSTLY_LENGTH_FACTOR = 10, 3
_LARGEST_NOISE_FACTOR = 4.0
_RATES = np.concatenate([[0.0], np.geomspace(1e-4, 0.02, 16), np.linspace(0.03, 0.5, 48)])
_SHARES = np.concatenate([[0.0], np.geomspace(0.03, 1.2, 12)])  # of the reported epsilon
_MAX_DRAWN_EPSILON = 40.0
Curve = dict[str, Any]
_MAX_COLUMNS = 240
_LEAST_SHOWN_SHIFT = 1e-9  # of the per-step sensitivity


def review_certificate(record: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the certificate in the text holds; nothing but this text is read."""
    text = record.get("certificate")
    if set(record) != {"certificate"} or not isinstance(text, str):
        raise InvalidType("certificate", must_be="the text of a certificate", found="another")
    if not text.lstrip().startswith("{"):  # anything else would be taken for the name of a file
        return _refutation(["it is not a JSON object"])
    try:
        content = verified_certificate(text)
    except InvalidCertificate as error:
        return _refutation(error.reasons)
    stated = unambiguous_json(text)
    guarantee = stated["guarantee"]
    report = summary(content.report, guarantee["delta"])
    try:
        words = page_words(content.report.run)
    except InvalidParameter:
        words = None
    statement = " ".join([report.answer, *report.qualifications])
    return {
        "holds": not (content.seeded or content.fitted_steps),
        "reasons": [
            *([f"the training was {REPRODUCIBLE}"] if content.seeded else []),
            *([fitted_steps_text(content.fitted_steps)] if content.fitted_steps else []),
        ],
        "statement": statement,
        "epsilon_text": up(guarantee["epsilon"]),
        "delta": guarantee["delta"],
        "bound": guarantee["bound"],
        "assumptions": list(report.assumptions),
        "release": str(report.release),
        "voided_by": list(report.release.voided_by),
        "unchecked": [
            _UNCHECKED,
            *(["who signed it"] if "signature" in stated else ["it is not signed"]),
            *on_trust(stated),
        ],
        "words": words,
        "words_leave_out": training_alone_text(content.report),
    }


def _refutation(reasons: list[str]) -> dict[str, Any]:
    return {"holds": False, "reasons": reasons}


def answer(question: str, record: Record) -> Answer:
    """The answer to a question of `QUESTIONS`; a `LastIterateError` if there is none."""
    reply: Answer = with_inf_as_text(QUESTIONS[question](record))
    return reply


@functools.lru_cache(maxsize=_CACHED_REPORTS)
def _report(run: TrainingRun, draft: bool) -> PrivacyReport:
    report = account(run)
    return report.cheap() if draft else report


def _run_and_delta(question: str, record: Record) -> tuple[TrainingRun, float]:
    """The run and the delta of a question; unknown keys are refused."""
    names = QUESTION_KEYS[question]
    unknown = [name for name in record if name not in names]
    if unknown:
        raise InvalidParameter("question key", unknown[0], must_be=f"one of {', '.join(names)}")
    if "run" not in record:
        raise InvalidType("run", must_be="given", found="none")
    delta = _check.number("delta", record.get("delta", USUAL_DELTA), above=0.0, below=1.0)
    return run_from_page(record["run"]), delta


def _is_draft(record: Record) -> bool:
    """Whether the question asks for a draft: certified, by the quick bounds alone."""
    draft = record.get("draft", False)
    if not isinstance(draft, bool):
        raise InvalidType("draft", draft, must_be="true or false")
    return draft


def _warning(delta: float, examples: int) -> str | None:
    """A sentence if delta is so large that publishing a whole example would be allowed."""
    if delta * examples < 1.0:
        return None
    return (
        f"delta = {delta:g} is not below 1/examples = {1 / examples:.1g}: publishing one randomly "
        "chosen example in full would meet this guarantee. Take a far smaller delta."
    )


def _account(record: Record) -> Answer:
    run, delta = _run_and_delta("account", record)
    draft = _is_draft(record)
    report = _report(run, draft)
    rows = ranked(report, delta)
    best, *others = (row for row in rows if row.used)
    composed = composition(report, delta)
    second = RECORDS[others[0].id] if others else None
    equal = bool(others) and others[0].ratio == 1.0
    by_id = {row.id: row for row in rows}
    return {
        "epsilon": best.epsilon,
        "epsilon_text": up(best.epsilon),
        "delta": delta,
        "delta_text": f"{delta:g}",
        "warning": _warning(delta, run.batches.examples),
        "draft": draft,
        "if": if_one_example_is(run.adjacency, run.examples_per_person),
        "bound": best.id,
        "kind": certainty_text(report.certainty),
        "why": why_least(run, RECORDS[best.id], second, equal=equal),
        "done": run_sentence(run),
        "composition": None
        if composed is None
        else {
            "bound": composed,
            "epsilon": by_id[composed].epsilon,
            "epsilon_text": up(by_id[composed].epsilon),
            "times": times(by_id[composed].ratio),
        },
        "bounds": [
            {
                "id": row.id,
                "epsilon": row.epsilon,
                "epsilon_text": up(row.epsilon),
                "mu_text": mu(row.mu),
                "times": times(row.ratio),
                "used": row.used,
                "source": str(RECORDS[row.id].source),
            }
            for row in rows
        ],
        "unmet": [
            {
                "bounds": list(one.bounds),
                "needs": one.reason.needs,
                "found": one.reason.found,
                "remedy": one.reason.remedy,
            }
            for one in refusals(report)
        ],
    }


def _lower_bound(record: Record) -> Answer:
    run, delta = _run_and_delta("lower_bound", record)
    report = _report(run, False)
    lower = {id_: one.epsilon(delta) for id_, one in report.lower_bounds.items()}
    strongest = max(lower, key=lower.__getitem__, default=None)
    epsilon = 0.0 if strongest is None else lower[strongest]
    ratio = report.ratio_to_lower_bound(delta)
    return {
        "bound": strongest,
        "epsilon": epsilon,
        "epsilon_text": down(epsilon),
        "ratio": ratio,
        "ratio_text": times(ratio),
        "says": lower_bound_text(strongest, epsilon, ratio),
    }


def _curve(record: Record) -> Answer:
    run, delta = _run_and_delta("curve", record)
    draft = _is_draft(record)
    over = _check.choice("over", record.get("over", "epochs"), among=_CURVE_AXES)
    if over == "extra_steps":
        return by_extra_steps(run, delta=delta)
    curve = by_epochs if over == "epochs" else by_noise
    return curve(run, delta=delta, draft=draft)


def _tradeoff(record: Record) -> Answer:
    run, delta = _run_and_delta("tradeoff", record)
    return tradeoff(_report(run, _is_draft(record)), delta=delta)


def _plan(record: Record) -> Answer:
    return shift_schedule(_run_and_delta("plan", record)[0])


def _unlearning(record: Record) -> Answer:
    """The epsilon of unlearning by this many extra steps, or the fewest steps for an epsilon."""
    run, delta = _run_and_delta("unlearning", record)
    examples = record.get("examples", 1)
    if ("epsilon" in record) == ("extra_steps" in record):
        must_be = "given, or extra_steps instead of it"
        raise InvalidType("epsilon", must_be=must_be, found="both, or none")
    if "epsilon" in record:
        result = unlearning(run, epsilon=record["epsilon"], delta=delta, examples=examples)
    else:
        steps = _check.count("extra_steps", record["extra_steps"], at_least=0)
        result = unlearning(run, extra_steps=steps, examples=examples)
    epsilon = result.epsilon(delta)
    return {
        "extra_steps": result.extra_steps,
        "share_of_training": result.share_of_training,
        "epsilon": epsilon,
        "epsilon_text": up(epsilon),
        "bound": result.report.bound_at(delta),
    }


def _calibrate(record: Record) -> Answer:
    run, delta = _run_and_delta("calibrate", record)
    if "epsilon" not in record:
        raise InvalidType("epsilon", must_be="given", found="none")
    over = record.get("over", "noise_std")
    calibrated = calibrate(run, epsilon=record["epsilon"], delta=delta, over=over)
    reached = account(calibrated).epsilon(delta)
    epochs = calibrated.steps / calibrated.batches.steps_per_pass
    return {
        "epsilon": reached,
        "epsilon_text": up(reached),
        "steps": calibrated.steps,
        "epochs": epochs,
        "epochs_text": short(epochs),
        "noise_std": calibrated.noise_std,
        "noise_multiplier": calibrated.noise_multiplier,
        "release_noise_std": calibrated.release_noise_std,
        "run": json.loads(calibrated.to_json()),
    }


def _remedies(record: Record) -> Answer:
    _, delta = _run_and_delta("remedies", record)
    return {"remedies": remedies(record["run"], delta=delta)}


def _code(record: Record) -> Answer:
    _, delta = _run_and_delta("code", record)
    return dict(as_code(description(record["run"]), delta=delta))


def _page(record: Record) -> Answer:
    from lastiterate.report.html import as_html

    run, delta = _run_and_delta("report", record)
    return {"html": as_html(_report(run, False), delta=delta)}


QUESTIONS: dict[str, Callable[[Record], Answer]] = {
    "account": _account,
    "lower_bound": _lower_bound,
    "curve": _curve,
    "tradeoff": _tradeoff,
    "plan": _plan,
    "calibrate": _calibrate,
    "unlearning": _unlearning,
    "remedies": _remedies,
    "verify": review_certificate,
    "code": _code,
    "report": _page,
}


def remedies(words: Mapping[str, Any], *, delta: float) -> list[dict[str, Any]]:
    """The changes that lower epsilon, with the new epsilon and the entries to change."""
    run = run_from_page(words)
    present = account(run).epsilon(delta)
    helping = []
    for says, changed in track("what would lower it", list(_changes(words, run))):
        try:
            epsilon = account(run_from_page({**words, **changed})).epsilon(delta)
        except LastIterateError:
            continue
        if epsilon < _WORTH_LISTING * present:
            helping.append(
                {
                    "says": says,
                    "epsilon": epsilon,
                    "epsilon_text": up(epsilon),
                    "words": changed,
                }
            )
    return sorted(helping, key=lambda one: float(one["epsilon"]))


def _changes(words: Mapping[str, Any], run: TrainingRun) -> Iterator[tuple[str, dict[str, Any]]]:
    """Candidate changes, in the units of the page's entries."""
    for name, says in (("noise_multiplier", "a noise multiplier"), ("noise_std", "a noise")):
        if words.get(name):
            more = _two_digits(_MORE_NOISE * words[name])
            yield f"{says} of {short(more)} instead of {short(words[name])}", {name: more}
    for name in ("epochs", "steps"):
        if words.get(name) and words[name] >= 2:
            fewer = int(_FEWER_EPOCHS * words[name])
            yield f"{fewer:,} {name} instead of {words[name]:,}", {name: fewer}
    if words.get("model", STATED.name) not in MODELS:
        return
    if MODELS[words.get("model", STATED.name)].by_feature_norm:
        penalty = words.get("regulariser", 0.0)
        more = _two_digits(2.0 * penalty) if penalty > 0.0 else _SMALL_PENALTY
        yield f"a penalty of {short(more)} instead of {short(penalty)}", {"regulariser": more}
    if run.releases == "last-iterate" and run.loss.convex:
        last = float(np.max(np.array(run.step_size) * np.array(run.noise_std)))
        more = _two_digits(max(_RELEASE * last, 2.0 * run.release_noise_std))
        yield f"noise of {short(more)} on the published model", {"release_noise_std": more}
    if run.batches.resampling is Resampling.NEVER and run.batches.ordered:
        yield "batches shuffled once, in secret", {"batches": "shuffled-once"}


def _two_digits(value: float) -> float:
    """A number rounded to two digits, as one would type it."""
    return float(f"{value:.2g}")


def by_epochs(run: TrainingRun, *, delta: float, draft: bool = False) -> Curve:
    """Every bound's epsilon if the run had stopped earlier or gone on."""
    if not (run.is_constant and run.batches.any_length):
        raise InvalidParameter("run", must_be="one that can go on", found="one that ends")
    longer = _COSTLY_LENGTH_FACTOR if _is_costly(run) else _LENGTH_FACTOR
    epoch = run.batches.steps_per_pass
    first, last = min(epoch, max(1, run.steps // longer)), min(run.steps * longer, 2**53)
    grid = np.geomspace(first, last, _curve_points(run))
    lengths = sorted({_whole_epochs(x, epoch) for x in grid.tolist()} | {run.steps})
    return {
        "across": "epochs",
        "x": [steps / epoch for steps in lengths],
        "here": run.steps / epoch,
        "curves": _epsilons_by_bound(
            lengths, lambda steps: stopped(run, steps), delta, draft=draft
        ),
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
    points = _curve_points(run)
    factors = np.geomspace(1.0 / _LARGEST_NOISE_FACTOR, _LARGEST_NOISE_FACTOR, points).tolist()
    factors[points // 2] = 1.0
    noise = float(run.noise_std)  # type: ignore[arg-type]  # constant
    shown = run.noise_multiplier if run.noise_multiplier is not None else noise
    return {
        "across": "noise_std" if run.noise_multiplier is None else "noise_multiplier",
        "x": [float(shown) * factor for factor in factors],  # type: ignore[arg-type]  # constant
        "here": shown,
        "curves": _epsilons_by_bound(
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
    epsilons = _SHARES * min(epsilon, _MAX_DRAWN_EPSILON)
    allowed = least_misses(_RATES[:, None], epsilons, profile.deltas(epsilons))
    misses: list[float] = np.clip(allowed.max(axis=1), 0.0, 1.0).tolist()
    return misses


def _curve_points(run: TrainingRun) -> int:
    if _is_costly(run):
        return _COSTLY_POINTS
    return _POINTS if run.batches.resampling is Resampling.NEVER else _SECRET_POINTS


def _is_costly(run: TrainingRun) -> bool:
    return run.batches.resampling is Resampling.EACH_STEP or not NON_CONVEX.unmet(run)


def _epsilons_by_bound(
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
    return {id_: [_none_for_nan(point.get(id_)) for point in points] for id_ in ids}


def _none_for_nan(epsilon: float | None) -> float | None:
    return None if epsilon is None or math.isnan(epsilon) else epsilon


def _rank(id_: str) -> int:
    return list(CATALOGUE).index(id_)


def shift_schedule(run: TrainingRun) -> dict[str, Any]:
    """The shift schedule of the most exposed position, in units of the per-step sensitivity.

    Where there are more steps than columns, it has the largest value of each column.
    """
    schedule = drawable_schedule(run)
    unit = float(schedule.sensitivities.max())
    shifts, distance = schedule.shifts.a / unit, schedule.shifts.z[1:] / unit
    sensitivity = np.zeros(shifts.size)
    sensitivity[schedule.participations] = schedule.sensitivities / unit
    starts = np.unique(np.linspace(0, run.steps, _MAX_COLUMNS, endpoint=False).astype(int))
    return {
        "across": "step",
        "x": [*(starts[1:]).tolist(), run.steps],
        "distance": _column_maxima(distance[: run.steps], starts),
        "shift": _column_maxima(shifts[: run.steps], starts),
        "sensitivity": _column_maxima(sensitivity[: run.steps], starts),
        "shift_on_release": _five_digits(float(shifts[-1])),
        "mu_text": up(schedule.shifts.mu),
        "noise_shares": _noise_shares(run, schedule),
        "says": _explanation(run, schedule, float(sensitivity.sum()), float(shifts.sum())),
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


def _explanation(
    run: TrainingRun, schedule: ShiftSchedule, sensitivity: float, shifted: float
) -> str:
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


def _column_maxima(values: Array, starts: np.ndarray[Any, Any]) -> list[float]:
    return [_five_digits(one) for one in np.maximum.reduceat(values, starts).tolist()]


def _five_digits(value: float) -> float:
    """The value rounded to what a picture can show."""
    return float(f"{value:.5g}") if value > _LEAST_SHOWN_SHIFT else 0.0
