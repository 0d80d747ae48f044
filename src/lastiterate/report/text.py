"""Reports as plain text, a paragraph for papers and model cards, and tables in lines of a width.

The paragraph follows "How to DP-fy ML", section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

import lastiterate
from lastiterate import _check
from lastiterate._display import as_markdown, down, mu, printable, times, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE, RECORDS
from lastiterate.profile.group import for_group
from lastiterate.report.sentences import (
    COLUMNS_EXPLAINED,
    LISTED_ONLY,
    MAY_BE_PUBLISHED,
    VOIDED_BY,
    VOUCHED_FOR,
    advice,
    protection_sentence,
    run_sentence,
    unit_of_privacy,
)
from lastiterate.report.summary import Summary, summary

WIDEST = 100
STAGES = "In Python, report.explain() lists the stages of bounds, and report.unmet what they need."
_COLUMN_GAP = 3  # spaces between the columns of a ruled table
_LEAST_COLUMN_WIDTH = 4  # characters in the narrowest column
FORMATS = ("text", "markdown", "model-card")
NO_GUARANTEE = "an estimate, NOT a guarantee: more may leak"
_LINEAR = "published/steinke-et-al/linear-estimate"


def as_text(
    report: PrivacyReport,
    *,
    delta: float = USUAL_DELTA,
    at_epsilon: float | None = None,
    width: int = WIDEST,
) -> str:
    """The report as text: the guarantee, its bound, assumptions, and other bounds' conditions."""
    content = summary(report, delta, at_epsilon=at_epsilon)
    run = report.run
    lines = [
        *_sentences(width, content.answer, content.not_included),
        *_sentences(width, content.other_adjacency_sentence, content.tightness),
        "",
        *_sentences(width, run_sentence(run), protection_sentence(run), *content.qualifications),
        *_bounds(content, width),
        *_sentences(
            width,
            content.far_bounds_text,
            LISTED_ONLY if content.lists_unused else "",
            COLUMNS_EXPLAINED,
        ),
        "",
        *wrapped(content.why, width),
        *_sentences(width, *advice(report, delta)),
        "",
        *wrapped(VOUCHED_FOR[report.enforced], width),
        *_bullets(content.assumptions, width),
        "",
        *wrapped(MAY_BE_PUBLISHED, width),
        *_bullets(content.release.allowed, width),
        *wrapped(VOIDED_BY, width),
        *_bullets(content.release.voided_by, width),
    ]
    if content.refusals:
        lines += ["", *wrapped("Bounds for such batches that do not apply, and why:", width)]
        lines += _refusals(content, width)
    if not report.unmet.keys() <= CATALOGUE.keys():
        lines += ["", *wrapped(STAGES, width)]
    return "\n".join(lines)


def _sentences(width: int, *sentences: str) -> list[str]:
    """Each on a line of its own; nothing for one that is empty."""
    return [line for sentence in filter(None, sentences) for line in wrapped(sentence, width)]


def _bounds(content: Summary, width: int) -> list[str]:
    certified = content.certainty is Certainty.UPPER
    named = "certified bound" if certified else "bound as published, not certified"
    rows = []
    for row in content.near:
        listed = row.id if row.used else f"{row.id} *"
        rows.append(
            (
                f"{row.id} <- used" if row.id == content.bound else listed,
                up(row.epsilon),
                mu(row.mu),
                up(row.advantage),
                times(row.ratio),
            )
        )
    return ruled((named, "epsilon", "mu (GDP)", "advantage", "ratio"), rows, width)


def _bullets(clauses: tuple[str, ...], width: int) -> list[str]:
    return in_columns([(" -", clause) for clause in clauses], width, apart=1)


def _refusals(content: Summary, width: int) -> list[str]:
    rows = []
    for refusal in content.refusals:
        needs = f"{refusal.reason.needs}; found {refusal.reason.found}"
        rows.append(("\n".join(refusal.bounds), f"{needs}\n-> {refusal.reason.remedy}"))
    return in_columns(rows, width, apart=2)


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
        sentences.append(_group_privacy_sentence(report, delta, max_examples_per_user))
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


def _group_privacy_sentence(report: PrivacyReport, delta: float, most: int) -> str:
    size = _check.count("max_examples_per_user", most, at_least=1)
    if report.run.examples_per_person != 1:
        size = -(-size // report.run.examples_per_person)
    epsilon = for_group(report, size).epsilon(delta)
    said = up(epsilon) if epsilon < math.inf else "unbounded"
    return (
        f"For a user with at most {most:,} examples, all of them changed at once, group privacy "
        f"gives epsilon = {said} at the same delta."
    )


def wrapped(text: str, width: int) -> list[str]:
    """Lines no longer than this; those that there are begin anew."""
    return [
        line
        for part in text.split("\n")
        for line in wrap(part, max(width, 1), break_on_hyphens=False) or [""]
    ]


def in_columns(rows: Sequence[Sequence[str]], width: int, *, apart: int) -> list[str]:
    """Lines of a table whose columns share the width."""
    widths = _widths(rows, width, apart)
    return [_row(line, widths, apart) for row in rows for line in _lines(row, widths)]


def ruled(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of a table with a rule below its head, and its numbers aligned to the right."""
    widths = _widths([head, *rows], width - 2, _COLUMN_GAP)
    rule = "─" * (sum(widths) + _COLUMN_GAP * (len(widths) - 1))
    headings, *others = [
        [f" {_row(line, widths, _COLUMN_GAP, numbers=True)}" for line in _lines(row, widths)]
        for row in (head, *rows)
    ]
    return ["", *headings, f" {rule}", *(line for lines in others for line in lines), ""]


def _widths(rows: Sequence[Sequence[str]], width: int, apart: int) -> list[int]:
    """The width of each column: its longest line, the widest made narrower if there is no room."""
    widths = [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*rows, strict=True)
    ]
    room = width - apart * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _LEAST_COLUMN_WIDTH:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The row as lines of cells, as many as the highest of them has."""
    cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    return [[cell[k] if k < len(cell) else "" for cell in cells] for k in range(height)]


def _row(cells: Sequence[str], widths: Sequence[int], apart: int, *, numbers: bool = False) -> str:
    first, *others = zip(cells, widths, strict=True)
    placed = [first[0].ljust(first[1])]
    placed += [cell.rjust(width) if numbers else cell.ljust(width) for cell, width in others]
    return (" " * apart).join(placed).rstrip()


def three_numbers(
    report: PrivacyReport, *, delta: float, audited: Mapping[str, float] | None = None
) -> str:
    """The table: lower bounds, estimates and the guarantee, each labelled.

    `audited` are lower bounds on epsilon of the training itself, by how they were found.
    """
    rows = [(down(value), f"at least: {name}") for name, value in (audited or {}).items()]
    for id_, profile in report.lower_bounds.items():
        said = f"at least, for some training of this description: {id_}"
        rows.append((down(profile.epsilon(delta)), said))
    for id_, one in report.estimates.items():
        value = one.epsilon_estimate(delta)
        about = f"about {value:.4f}" if math.isfinite(value) else "inf"
        rows.append((about, f"{NO_GUARANTEE}: {id_}"))
    if not report.estimates:
        reasons = "; ".join(map(str, APPROXIMATIONS[_LINEAR].unmet(report.run)))
        rows.append(("-", f"no estimate: {_LINEAR} {reasons or 'is of a run alone'}"))
    rows.append((up(report.epsilon(delta)), f"at most, the guarantee: {report.bound}"))
    wide = max(len(value) for value, _ in rows)
    lines = [f"  {value:>{wide}}  {name}" for value, name in rows]
    return "\n".join([f"epsilon at delta = {delta:g}", *lines])
