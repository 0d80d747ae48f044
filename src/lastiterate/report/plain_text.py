"""Reports as plain text, and paragraphs and columns in lines of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from lastiterate._display import mu, times, up
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.privacy_report import PrivacyReport
from lastiterate.report.advice import advice
from lastiterate.report.run_text import (
    COLUMNS_EXPLAINED,
    LISTED_ONLY,
    MAY_BE_PUBLISHED,
    VOIDED_BY,
    VOUCHED_FOR,
    protection_sentence,
    run_sentence,
)
from lastiterate.report.summary import Summary, summary
from lastiterate.report_forms import USUAL_DELTA

WIDEST = 100
STAGES = "In Python, report.explain() lists the stages of bounds, and report.unmet what they need."


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


_APART = 3  # spaces between the columns of a ruled table
_LEAST = 4  # characters in the narrowest column


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
    widths = _widths([head, *rows], width - 2, _APART)
    rule = "─" * (sum(widths) + _APART * (len(widths) - 1))
    headings, *others = [
        [f" {_row(line, widths, _APART, numbers=True)}" for line in _lines(row, widths)]
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
    while sum(widths) > room and max(widths) > _LEAST:
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
