"""Sentences without which the number of a report would say too much."""

from __future__ import annotations

from lastiterate.accounting import PrivacyReport

SELECTED = (
    "The model is the best of a secret number of tries, and the run described here is one of them: "
    "the guarantee is of the choice among all."
)
SEEDED = "The noise came from a seed: this is not private against anyone who knows the seed."
TRIES_KNOWN = "how many tries there were, how long they took, or another of the models tried"


def qualifications(report: PrivacyReport) -> tuple[str, ...]:
    """Sentences that qualify the number by facts that the run does not hold."""
    said = [SELECTED] if report.selected else []
    if report.followed is not None:
        said.append(_followed(*report.followed))
    if report.seeded:
        said.append(SEEDED)
    return (*said, *report.caveats)


def of_the_run_alone(report: PrivacyReport) -> str:
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


def _followed(steps: int, requests: int) -> str:
    often = "1 unlearning request" if requests == 1 else f"{requests:,} unlearning requests"
    return (
        f"{often} followed, with {steps:,} extra steps that saw those who stay once more: the "
        "guarantee is theirs, of all models that were published, together."
    )
