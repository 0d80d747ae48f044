"""A run in words: what was done, and what may be published of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lastiterate._digits import down, short, times, up
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.other_releases import KINDS
from lastiterate.other_releases import Release as Statistic
from lastiterate.run.adjacency import IN_WORDS, if_one_example_is
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun

_RELEASED = {
    "last-iterate": "the last iterate",
    "last-iterate-and-order": "the last iterate and the order of the batches",
    "every-iterate": "every iterate",
}


FAR = 10.0  # times the best; such bounds are named apart
VOIDED_BY = "Any of these voids the guarantee:"
VOUCHED_FOR = {False: "You state that", True: "The trainer enforced that"}
COLUMNS_EXPLAINED = (
    "mu: at least as private as a Gaussian mechanism with this mu; - if no mu describes the "
    "guarantee. advantage: the most by which an attacker's true-positive rate exceeds its "
    "false-positive rate. ratio: epsilon over the smallest epsilon."
)
LISTED_ONLY = "* as published: the proof has a gap, so it is listed and not used."


@dataclass(frozen=True)
class Release:
    """The outputs that the guarantee allows to be published, and what would void it."""

    allowed: str
    voided_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"You may publish {self.allowed}; nothing else."


def what_was_done(run: TrainingRun) -> str:
    """Steps and batches, in a line."""
    counted = "1 step" if run.steps == 1 else f"{run.steps:,} steps"
    return f"{counted} of noisy gradient descent, {run.batches.described()}."


def what_is_protected(run: TrainingRun) -> str:
    """A text on what is released, and on the change to the data that is protected."""
    noise = " with noise added" if run.release_noise_std > 0.0 else ""
    return f"Released: {_RELEASED[run.releases]}{noise}. Protected: {unit_of_privacy(run)}."


def unit_of_privacy(run: TrainingRun) -> str:
    """The protected change: who, and how their examples differ between neighbouring data sets."""
    who, changed = _changed(run)
    return f"{who} being {changed}"


def change_hidden(run: TrainingRun) -> str:
    """The change of the data that the guarantee is about, without a verb."""
    return " ".join(_changed(run))


def _changed(run: TrainingRun) -> tuple[str, str]:
    most = run.examples_per_person
    if most == 1:
        return "one example", IN_WORDS[run.adjacency]
    changed = "replaced by others" if run.adjacency == "replace" else "left out (zeroed)"
    return f"all examples of one person, at most {most:,},", changed


def instead(adjacency: str, epsilon: float, per_person: int = 1) -> str:
    """A sentence with the epsilon of the same training under this other adjacency."""
    condition = if_one_example_is(adjacency, per_person)
    return f"{condition.capitalize()} instead: epsilon = {up(epsilon)}."


def listed_apart(rows: Iterable[tuple[str, float]]) -> str:
    """Bounds whose number says nothing beside the best one, in a sentence."""
    named = ", ".join(f"{id_} ({up(epsilon)})" for id_, epsilon in rows)
    return f"Also valid, but at least {FAR:g} times as large: {named}."


def how_certain(certainty: Certainty) -> str:
    """The words for the certainty of an epsilon: certified, or only as published."""
    return "certified" if certainty is Certainty.UPPER else "as published, not certified"


def without_steps(steps: Sequence[str]) -> str:
    """A clause on preprocessing steps that learnt from the same examples and are not included."""
    many = len(steps) > 1
    return (
        f"not included: the preprocessing {'steps' if many else 'step'} {', '.join(steps)} "
        "learnt from the same examples, and what was learnt is published with the model. The "
        "guarantee covers the training alone; nothing is certified of the whole pipeline"
    )


def beside_the_lower_bound(bound: str | None, epsilon: float, ratio: float) -> str:
    """How far the answer is from the best of all valid guarantees, as far as that is known."""
    if bound is None or not ratio < math.inf:
        return "No lower bound is known."
    return (
        f"At most {times(ratio)} times the lower bound, {down(epsilon)} ({bound}), below which no "
        "guarantee for such a run is valid."
    )


def release_rule(
    bound: Bound, run: TrainingRun, other_releases: Sequence[Statistic] = ()
) -> Release:
    """Derived from what the bound refuses: its hypotheses decide, not the run's own plan."""
    secret, only_last = needs_secret_order(bound, run), needs_last_iterate_only(bound, run)
    if only_last:
        noise = ", with the noise on release" if run.release_noise_std > 0.0 else ""
        allowed = f"the parameters after step {run.steps:,}{noise}"
    else:
        allowed = "the parameters after every step"
    if not secret and run.batches.ordered:
        allowed += ", and the order of the batches"
    for one in other_releases:
        allowed += f", and {KINDS[one.kind].published}"
    voided = []
    if only_last:
        voided.append("any other iterate, such as a checkpoint or an average of iterates")
    voided.append("a loss or score on these examples, or stopping, tuning or choosing by one")
    if secret:
        voided.append("the order of the batches, or the seed it came from")
    voided.append("the noise, or the seed it came from")
    return Release(allowed, tuple(voided))


def needs_secret_order(bound: Bound, run: TrainingRun) -> bool:
    """Whether the bound would refuse this run if the order were published."""
    return bool(bound.unmet(run.replace(releases="last-iterate-and-order")))


def needs_last_iterate_only(bound: Bound, run: TrainingRun) -> bool:
    """Whether the bound would refuse this run if every iterate were published."""
    return bool(bound.unmet(run.replace(releases="every-iterate")))


def scheduled(value: Schedule) -> str:
    """A number, or the range of a schedule."""
    if not isinstance(value, tuple):
        return short(value)
    low, high = min(value), max(value)
    return short(low) if low == high else f"between {short(low)} and {short(high)}, as scheduled,"
