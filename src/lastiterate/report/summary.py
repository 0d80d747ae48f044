"""The contents of a report: a summary for texts and pages, and a record for programs.

The keys of the record are stable.  An infinite value is the string "inf", since JSON has no
infinity.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

from lastiterate import _check
from lastiterate._display import is_one, up
from lastiterate._progress import track
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.privacy_report import PrivacyReport
from lastiterate.report.advice import advice
from lastiterate.report.assumptions import (
    TRIES_KNOWN,
    assumptions,
    noise_of_release,
    qualifications,
)
from lastiterate.report.run_text import (
    FAR,
    Refusal,
    ReleaseRule,
    certainty_text,
    far_bounds_text,
    fitted_steps_text,
    later_bounds_text,
    lower_bound_text,
    other_adjacency_text,
    refusals,
    release_rule,
    unit_of_privacy,
    why_least,
)
from lastiterate.report_bounds import ratio_to_lower
from lastiterate.run.training_run import if_one_example_is


@dataclass(frozen=True)
class Row:
    """One bound that applies."""

    id: str
    epsilon: float
    mu: float
    advantage: float
    ratio: float  # of its epsilon to that of the bound that answers
    used: bool


@dataclass(frozen=True)
class Summary:
    """The contents of a report at one delta."""

    delta: float
    epsilon: float
    adjacency: str
    per_person: int
    other_adjacency: tuple[str, float] | None  # and its epsilon, where that is known
    asked: tuple[float, float] | None  # an epsilon, and its delta
    bound: str
    certainty: Certainty
    bounds: tuple[Row, ...]
    lower_bound: str | None
    lower_epsilon: float
    ratio_to_lower_bound: float
    why: str
    qualifications: tuple[str, ...]  # that limit what epsilon means
    assumptions: tuple[str, ...]
    release: ReleaseRule
    refusals: tuple[Refusal, ...]
    preprocessing: tuple[str, ...] = ()  # steps that learnt from the same examples
    later_lower_bounds: tuple[str, ...] = ()  # that apply, but take long

    @property
    def kind(self) -> str:
        """Whether the number is certified, in words."""
        alone = " for the training alone" if self.preprocessing else ""
        return certainty_text(self.certainty) + alone

    @property
    def not_included(self) -> str:
        """A sentence on preprocessing that the number leaves out; empty where there is none."""
        if not self.preprocessing:
            return ""
        said = fitted_steps_text(self.preprocessing)
        return f"{said[0].upper()}{said[1:]}."

    @property
    def tightness(self) -> str:
        """Sentences that compare epsilon with the lower bound, and name those not computed."""
        later = later_bounds_text(self.later_lower_bounds, self.delta)
        if later and self.lower_bound is None:
            return later
        said = lower_bound_text(self.lower_bound, self.lower_epsilon, self.ratio_to_lower_bound)
        return f"{said} {later}".strip()

    @property
    def answer(self) -> str:
        """The first line of every report: the number, and the change of data that it is about."""
        said = f"epsilon = {up(self.epsilon)} at delta = {self.delta:g}"
        if self.asked is not None:
            epsilon, delta = self.asked
            said = f"delta = {up(delta)} at epsilon = {epsilon:g}, {said}"
        return f"{said} {if_one_example_is(self.adjacency, self.per_person)}, {self.kind}."

    @property
    def other_adjacency_sentence(self) -> str:
        """A sentence with epsilon under the other adjacency; empty where that is not known."""
        if self.other_adjacency is None:
            return ""
        return other_adjacency_text(*self.other_adjacency, self.per_person)

    @property
    def near(self) -> tuple[Row, ...]:
        """The bounds whose numbers can be compared with the best."""
        return tuple(row for row in self.bounds if row.ratio < FAR)

    @property
    def far_bounds_text(self) -> str:
        """The other bounds, in a sentence; empty where there are none."""
        far = [(row.id, row.epsilon) for row in self.bounds if row not in self.near]
        return far_bounds_text(far) if far else ""

    @property
    def lists_unused(self) -> bool:
        """Whether bounds are listed that `account` does not use."""
        return any(not row.used for row in self.bounds)


def summary(report: PrivacyReport, delta: float, *, at_epsilon: float | None = None) -> Summary:
    """The summary of a report at this delta, with the delta of `at_epsilon` if that is given."""
    rows = ranked(report, delta)
    other = report.under_other_adjacency
    best = rows[0]
    lower = {id_: one.epsilon(delta) for id_, one in report.quick_lower_bounds.items()}
    strongest = max(lower, key=lower.__getitem__, default=None)
    bound = RECORDS[best.id]
    return Summary(
        delta=delta,
        epsilon=best.epsilon,
        adjacency=report.run.adjacency,
        per_person=report.run.examples_per_person,
        other_adjacency=None if other is None else (other.run.adjacency, other.epsilon(delta)),
        asked=None if at_epsilon is None else (at_epsilon, report.delta(at_epsilon)),
        bound=best.id,
        certainty=report.certainty,
        bounds=rows,
        lower_bound=strongest,
        lower_epsilon=0.0 if strongest is None else lower[strongest],
        ratio_to_lower_bound=ratio_to_lower(best.epsilon, max(lower.values(), default=0.0)),
        later_lower_bounds=tuple(one.id for one in report.later_lower_bounds),
        why=_why_least(report, rows),
        qualifications=qualifications(report),
        assumptions=(
            *assumptions(bound, report.run),
            *(noise_of_release(one) for one in report.other_releases),
        ),
        release=_release(report, bound),
        refusals=tuple(refusals(report)),
        preprocessing=report.preprocessing,
    )


def _release(report: PrivacyReport, bound: Bound) -> ReleaseRule:
    rule = release_rule(bound, report.run, report.other_releases)
    if report.followed is not None:
        requests = report.followed[1]
        those = "its request" if requests == 1 else f"each of its {requests:,} requests"
        more = f"the parameters after the extra steps of {those}"
        rule = replace(rule, allowed=(*rule.allowed, more))
    if report.selected:
        rule = replace(rule, voided_by=(*rule.voided_by, TRIES_KNOWN))
    return rule


def ranked(report: PrivacyReport, delta: float) -> tuple[Row, ...]:
    """The bound that answers, as `report.bound_at` chooses it, then the others by epsilon."""
    _check.number("delta", delta, at_least=0.0, at_most=1.0)
    evaluated = track("accounting", list(report.all))
    epsilons = {id_: report.all[id_].epsilon(delta) for id_ in evaluated}
    best = min(report.used, key=lambda id_: (epsilons[id_], report.used[id_].gdp()))
    order = sorted(report.all, key=lambda id_: (id_ != best, epsilons[id_]))
    return tuple(
        Row(
            id=id_,
            epsilon=epsilons[id_],
            mu=report.all[id_].gdp(),
            advantage=report.all[id_].advantage(),
            ratio=_ratio(epsilons[id_], epsilons[best]),
            used=id_ in report.used,
        )
        for id_ in order
    )


def _ratio(epsilon: float, least: float) -> float:
    if epsilon == least:
        return 1.0
    return epsilon / least if least > 0.0 else math.inf


def _why_least(report: PrivacyReport, rows: tuple[Row, ...]) -> str:
    best, *others = (row for row in rows if row.used)
    second = RECORDS[others[0].id] if others else None
    equal = bool(others) and is_one(others[0].ratio)
    return why_least(report.run, RECORDS[best.id], second, equal=equal)


def as_record(
    report: PrivacyReport, *, delta: float, at_epsilon: float | None = None
) -> dict[str, Any]:
    """The summary as dicts, lists, strings and numbers, ready for JSON."""
    content = summary(report, delta, at_epsilon=at_epsilon)
    record: dict[str, Any] = {
        "delta": delta,
        "epsilon": content.epsilon,
        "adjacency": content.adjacency,
        "other_adjacency": _pair(("adjacency", "epsilon"), content.other_adjacency),
        "asked": _pair(("epsilon", "delta"), content.asked),
        "bound": content.bound,
        "certainty": content.certainty.name.lower(),
        "all": {row.id: row.epsilon for row in content.bounds},
        "bounds": [_plain(row) for row in content.bounds],
        "lower": {
            "bound": content.lower_bound,
            "epsilon": content.lower_epsilon,
            "gap": content.ratio_to_lower_bound,
            "not_computed": list(content.later_lower_bounds),
        },
        "why": content.why,
        "advice": list(advice(report, delta)),
        "examples_per_person": content.per_person,
        "protected": unit_of_privacy(report.run),
        "qualifications": list(content.qualifications),
        "selected": report.selected,
        "followed": _pair(("extra_steps", "requests"), report.followed),
        "seeded": report.seeded,
        "assumptions": list(content.assumptions),
        "enforced": report.enforced,
        "preprocessing": list(report.preprocessing),
        "release": {
            "allowed": list(content.release.allowed),
            "voided_by": list(content.release.voided_by),
        },
        "other_releases": [one.as_record() | {"mu": one.mu} for one in report.other_releases],
        "unmet": {id_: [str(one) for one in reasons] for id_, reasons in report.unmet.items()},
    }
    return {**with_inf_as_text(record), "run": json.loads(report.run.to_json())}


def as_json(report: PrivacyReport, *, delta: float, at_epsilon: float | None = None) -> str:
    """The record as indented JSON."""
    record = as_record(report, delta=delta, at_epsilon=at_epsilon)
    return json.dumps(record, indent=2, allow_nan=False)


def _pair(names: tuple[str, str], values: tuple[Any, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def with_inf_as_text(value: Any) -> Any:
    """JSON has no infinity: the text "inf" where no finite number is certified."""
    if isinstance(value, dict):
        return {key: with_inf_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_inf_as_text(item) for item in value]
    return "inf" if value == math.inf else value


def _plain(row: Row) -> dict[str, Any]:
    bound = RECORDS[row.id]
    return {
        "id": row.id,
        "epsilon": row.epsilon,
        "mu": row.mu,
        "advantage": row.advantage,
        "ratio": row.ratio,
        "used": row.used,
        "certainty": bound.certainty.name.lower(),
        "gives": bound.gives,
        "source": str(bound.source),
    }
