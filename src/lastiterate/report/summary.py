"""The contents of a report: a summary for texts and pages, and a record for programs.

The summary lists the assumptions of the bound in question alone.  Conditions on the numbers, such
as step sizes of at most 2/smoothness, are checked and not repeated.  The keys of the record are
stable.  An infinite value is the string "inf", since JSON has no infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lastiterate import _check
from lastiterate._display import is_one, short, up
from lastiterate._progress import track
from lastiterate.accounting import PrivacyReport, ratio_to_lower
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import CONVEX
from lastiterate.other_releases import KINDS, Release
from lastiterate.report.sentences import (
    FAR,
    Refusal,
    ReleaseRule,
    advice,
    certainty_text,
    far_bounds_text,
    fitted_steps_text,
    later_bounds_text,
    lower_bound_text,
    momentum_text,
    needs_last_iterate_only,
    needs_secret_order,
    other_adjacency_text,
    refusals,
    release_rule,
    scheduled,
    unit_of_privacy,
    why_least,
)
from lastiterate.run.training_run import Ball, TrainingRun, if_one_example_is

SELECTED = (
    "The model is the best of a secret number of tries, and the run described here is one of them: "
    "the guarantee is of the choice among all."
)
SEEDED = "The noise came from a seed: this is not private against anyone who knows the seed."
TRIES_KNOWN = "how many tries there were, how long they took, or another of the models tried"


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
            ratio=_ratio_to_least(epsilons[id_], epsilons[best]),
            used=id_ in report.used,
        )
        for id_ in order
    )


def _ratio_to_least(epsilon: float, least: float) -> float:
    if epsilon == least:
        return 1.0
    return epsilon / least if least > 0.0 else math.inf


def _why_least(report: PrivacyReport, rows: tuple[Row, ...]) -> str:
    best, *others = (row for row in rows if row.used)
    second = RECORDS[others[0].id] if others else None
    equal = bool(others) and is_one(others[0].ratio)
    return why_least(report.run, RECORDS[best.id], second, equal=equal)


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


def assumptions(bound: Bound, run: TrainingRun) -> list[str]:
    """The assumptions that a guarantee rests on, each a clause that follows "You state that"."""
    hides = needs_last_iterate_only(bound, run)
    stated = list(_loss(bound, run)) if hides else []
    stated += _gradients(run)
    if run.loss.regulariser and run.adjacency == "zero-out" and run.batches.exact_size:
        stated.append("the penalty is shared: it stays as it is when an example is left out")
    stated.append(run.batches.stated(secret=needs_secret_order(bound, run)))
    stated += _noise(run, released=hides)
    if hides:
        stated.append(_steps(run))
        stated += _domain(run)
    if run.examples_per_person > 1:
        stated.append(
            f"no person has more than {run.examples_per_person:,} of the examples: nothing here "
            "checks that, and of a person with more only so many are protected together"
        )
    stated.append("the start does not depend on the examples, whose number is public")
    return stated


def _loss(bound: Bound, run: TrainingRun) -> Iterator[str]:
    loss = run.loss
    contracting = CONVEX in bound.all_needs(run)
    penalty = loss.regulariser
    included = f" (a penalty of curvature {short(penalty)} included)" if penalty else ""
    known = []
    if loss.smoothness is not None:
        known.append(f"{short(loss.smoothness)}-smooth")
    if contracting or (loss.convex and loss.smoothness is not None):
        # A batch that may be empty, or a clipped one, keeps of the curvature only the penalty's.
        curved = loss.strong_convexity if run.batches.exact_size else 0.0
        curved = 0.0 if run.clip_may_be_active else curved
        known.append(f"{short(curved)}-strongly convex" if curved > 0.0 else "convex")
    if known:
        yield f"the loss of every possible example is {' and '.join(known)}{included}"
    if penalty and not run.batches.exact_size:
        yield "that penalty is added in every step, whatever the batch"
    if loss.holder is not None and not contracting:
        constant, order = loss.holder
        yield (
            f"the gradient of every possible example moves by at most {short(constant)} "
            f"d^{short(order)} between points at distance d{_penalty_aside(run)}"
        )
    if contracting and run.clip_norm is None:
        yield "steps use the gradients of these losses as they are: none is clipped to a norm"


def _gradients(run: TrainingRun) -> Iterator[str]:
    bound, lipschitz = run.gradient_bound, run.loss.lipschitz
    aside = _penalty_aside(run)
    if lipschitz is not None:
        idle = run.clip_norm is not None and not run.clip_may_be_active
        so = ", so that the clip never acts" if idle else ""
        yield f"no possible example has a gradient of norm above {short(lipschitz)}{aside}{so}"
    if run.clip_norm is not None:
        yield f"every example's gradient is clipped to norm {short(run.clip_norm)}{aside}"
    replaced = run.adjacency == "replace"
    follows = bound is not None and run.sensitivity >= bound * (2.0 if replaced else 1.0)
    if follows:
        return
    most = f"{short(run.sensitivity)} in norm"
    if replaced:
        yield f"any two possible examples' gradients, at the same point, differ by at most {most}"
    else:
        yield f"the gradient of every possible example is at most {most}{aside}"


def _penalty_aside(run: TrainingRun) -> str:
    return ", the penalty aside" if run.loss.regulariser else ""


def _noise(run: TrainingRun, *, released: bool) -> Iterator[str]:
    most = max(run.noise_std) if isinstance(run.noise_std, tuple) else run.noise_std
    if most > 0.0:
        yield (
            f"independent Gaussian noise of standard deviation {scheduled(run.noise_std)} per "
            "coordinate is added to the averaged gradient in every step"
        )
    if released and run.release_noise_std > 0.0:
        yield (
            f"independent Gaussian noise of standard deviation {short(run.release_noise_std)} per "
            "coordinate is added once, to the published parameters"
        )


def _steps(run: TrainingRun) -> str:
    fixed = "and the number of steps was fixed beforehand"
    if run.momentum == 0.0:
        return "every step is a plain gradient step, without momentum or preconditioning, " + fixed
    return (
        f"every step is one of SGD with {momentum_text(run)}, without preconditioning; the buffer "
        "is empty at the start, and it, the optimizer's state and all checkpoints stay secret; "
        + fixed
    )


def _domain(run: TrainingRun) -> Iterator[str]:
    if not isinstance(run.domain, Ball):
        return
    yield (
        f"every iterate and the published model are projected onto one closed convex set of "
        f"diameter {short(run.domain.diameter)}, "
        "chosen without regard to the examples"
    )


def noise_of_release(release: Release) -> str:
    """The noise on a statistic that is published beside the model, as a clause."""
    return (
        f"independent Gaussian noise of standard deviation {short(release.noise_std)} is added to "
        f"{KINDS[release.kind].summed}"
    )


def qualifications(report: PrivacyReport) -> tuple[str, ...]:
    """Sentences that qualify the number by facts that the run does not hold."""
    said = [SELECTED] if report.selected else []
    if report.followed is not None:
        said.append(_requests_sentence(*report.followed))
    if report.seeded:
        said.append(SEEDED)
    return (*said, *report.caveats)


def _requests_sentence(steps: int, requests: int) -> str:
    often = "1 unlearning request" if requests == 1 else f"{requests:,} unlearning requests"
    return (
        f"{often} followed, with {steps:,} extra steps that saw those who stay once more: the "
        "guarantee is theirs, of all models that were published, together."
    )


def training_alone_text(report: PrivacyReport) -> str:
    """A sentence on what a number derived from the run alone leaves out; empty if nothing."""
    left_out = []
    if report.other_releases:
        left_out.append("what is published beside the model")
    if report.selected:
        left_out.append("the choice among several tries")
    if report.followed is not None:
        left_out.append("the steps of unlearning requests")
    if not left_out:
        return ""
    return f"This is of the training alone: it does not include {' or '.join(left_out)}."


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
        "bounds": [_row_record(row) for row in content.bounds],
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


def _pair(names: tuple[str, str], values: tuple[Any, Any] | None) -> dict[str, Any] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _row_record(row: Row) -> dict[str, Any]:
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


def with_inf_as_text(value: Any) -> Any:
    """JSON has no infinity: the text "inf" where no finite number is certified."""
    if isinstance(value, dict):
        return {key: with_inf_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_inf_as_text(item) for item in value]
    return "inf" if value == math.inf else value


def as_json(report: PrivacyReport, *, delta: float, at_epsilon: float | None = None) -> str:
    """The record as indented JSON."""
    record = as_record(report, delta=delta, at_epsilon=at_epsilon)
    return json.dumps(record, indent=2, allow_nan=False)
