"""Answers to the page's questions: one function for each, from a JSON record to a JSON record."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from lastiterate import _check
from lastiterate._display import down, mu, short, times, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.calibration import calibrate
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.explore import page_curves
from lastiterate.explore.certificate_review import review
from lastiterate.explore.page_runs import as_code, description, run_from_page
from lastiterate.explore.remedies import remedies
from lastiterate.report.run_text import (
    certainty_text,
    lower_bound_text,
    refusals,
    run_sentence,
    why_least,
)
from lastiterate.report.summary import ranked, with_inf_as_text
from lastiterate.run.adjacency import if_one_example_is
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning import unlearning

Record = Mapping[str, Any]
Answer = dict[str, Any]
_CACHED_REPORTS = 32
_CURVE_AXES = ("epochs", "noise", "extra_steps")


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
    composed = page_curves.composition(report, delta)
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
        return page_curves.by_extra_steps(run, delta=delta)
    curve = page_curves.by_epochs if over == "epochs" else page_curves.by_noise
    return curve(run, delta=delta, draft=draft)


def _tradeoff(record: Record) -> Answer:
    run, delta = _run_and_delta("tradeoff", record)
    return page_curves.tradeoff(_report(run, _is_draft(record)), delta=delta)


def _plan(record: Record) -> Answer:
    return page_curves.shift_schedule(_run_and_delta("plan", record)[0])


def _unlearning(record: Record) -> Answer:
    """The epsilon of unlearning by so many extra steps, or the fewest steps for an epsilon."""
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
    "verify": review,
    "code": _code,
    "report": _page,
}
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
