"""The paragraph for a paper or a model card, after "How to DP-fy ML", section 5.3."""

from __future__ import annotations

import math

import lastiterate
from lastiterate import _check
from lastiterate._display import as_markdown, printable, up
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.privacy_report import PrivacyReport
from lastiterate.profile.group import for_group
from lastiterate.report.run_text import run_sentence, unit_of_privacy
from lastiterate.report.summary import summary

FORMATS = ("text", "markdown", "model-card")


def statement(
    report: PrivacyReport,
    *,
    delta: float,
    max_examples_per_user: int | None,
    format: str,
) -> str:
    """A privacy statement: the release, the protected unit, the guarantee and its assumptions."""
    _check.choice("format", format, among=FORMATS)
    content = summary(report, delta)
    vouched = (
        "enforced by the trainer" if report.enforced else "stated by whoever trained the model"
    )
    sentences = [
        f"{run_sentence(report.run)}",
        f"Only this may be published: {'; '.join(content.release.allowed)}.",
        f"This is (epsilon, delta)-differentially private with epsilon = {up(content.epsilon)} and "
        f"delta = {delta:g}, {content.kind}, against {unit_of_privacy(report.run)}; the number of "
        "examples is public.",
        *content.qualifications,
    ]
    if content.not_included:
        # The names in it are from a pipeline, or from the file of a certificate.
        as_shown = as_markdown if format in ("markdown", "model-card") else printable
        sentences.append(as_shown(content.not_included))
    if max_examples_per_user is not None:
        sentences.append(_of_users(report, delta, max_examples_per_user))
    sentences.append(
        f"Accountant: lastiterate {lastiterate.__version__}, bound {content.bound} "
        f"({RECORDS[content.bound].source})."
    )
    rests = [f"{one[0].upper()}{one[1:]}." for one in content.assumptions]
    voided = [f"{one[0].upper()}{one[1:]}." for one in content.release.voided_by]
    assumed = f"It rests on the following, {vouched}:"
    if format == "text":
        lines = [" ".join(sentences), "", assumed, *(f"- {one}" for one in rests)]
        return "\n".join([*lines, "", "Any of these voids it:", *(f"- {one}" for one in voided)])
    heading = "## Privacy" if format == "model-card" else "**Differential privacy.**"
    lines = [heading, "", *(f"{one}\n" for one in sentences), assumed, ""]
    lines += [f"- {one}" for one in rests]
    if format == "model-card":
        lines += ["", "### What voids it", "", *(f"- {one}" for one in voided)]
    return "\n".join(lines)


def _of_users(report: PrivacyReport, delta: float, most: int) -> str:
    size = _check.count("max_examples_per_user", most, at_least=1)
    if report.run.examples_per_person != 1:
        size = -(-size // report.run.examples_per_person)
    epsilon = for_group(report, size).epsilon(delta)
    said = up(epsilon) if epsilon < math.inf else "unbounded"
    return (
        f"For a user with at most {most:,} examples, all of them changed at once, group privacy "
        f"gives epsilon = {said} at the same delta."
    )
