"""A report as text that a person can read."""

from __future__ import annotations

from lastiterate._digits import mu, times, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport
from lastiterate.bounds.bound import Certainty
from lastiterate.report.run_text import (
    COLUMNS_EXPLAINED,
    LISTED_ONLY,
    VOIDED_BY,
    VOUCHED_FOR,
    what_is_protected,
    what_was_done,
)
from lastiterate.report.summary import Summary, summary
from lastiterate.report.text_columns import in_columns, ruled, wrapped

WIDEST = 100


def as_text(
    report: PrivacyReport,
    *,
    delta: float = USUAL_DELTA,
    at_epsilon: float | None = None,
    width: int = WIDEST,
) -> str:
    """The report as text: the guarantee, its bound, assumptions, and other bounds' conditions."""
    told = summary(report, delta, at_epsilon=at_epsilon)
    run = report.run
    lines = [
        *_sentences(width, told.answer, told.not_included),
        *_sentences(width, told.beside_the_other_adjacency, told.tightness),
        "",
        *_sentences(width, what_was_done(run), what_is_protected(run), *told.qualifications),
        *_bounds(told, width),
        *_sentences(
            width, told.listed_apart, LISTED_ONLY if told.lists_more else "", COLUMNS_EXPLAINED
        ),
        "",
        *wrapped(told.why, width),
        "",
        *wrapped(VOUCHED_FOR[report.enforced], width),
        *_bullets(told.assumptions, width),
        "",
        *_sentences(width, str(told.release), VOIDED_BY),
        *_bullets(told.release.voided_by, width),
    ]
    if told.refusals:
        lines += ["", *wrapped("What other bounds for such batches would need:", width)]
        lines += _refusals(told, width)
    return "\n".join(lines)


def _sentences(width: int, *sentences: str) -> list[str]:
    """Each on a line of its own; nothing for one that is empty."""
    return [line for sentence in filter(None, sentences) for line in wrapped(sentence, width)]


def _bounds(told: Summary, width: int) -> list[str]:
    certified = told.certainty is Certainty.UPPER
    named = "certified bound" if certified else "bound as published, not certified"
    rows = []
    for row in told.near:
        listed = row.id if row.used else f"{row.id} *"
        rows.append(
            (
                f"{row.id} <- used" if row.id == told.bound else listed,
                up(row.epsilon),
                mu(row.mu),
                up(row.advantage),
                times(row.ratio),
            )
        )
    return ruled((named, "epsilon", "mu (GDP)", "advantage", "ratio"), rows, width)


def _bullets(clauses: tuple[str, ...], width: int) -> list[str]:
    return in_columns([(" -", clause) for clause in clauses], width, apart=1)


def _refusals(told: Summary, width: int) -> list[str]:
    rows = []
    for refusal in told.refusals:
        needs = f"{refusal.reason.needs}; found {refusal.reason.found}"
        rows.append(("\n".join(refusal.bounds), f"{needs}\n-> {refusal.reason.remedy}"))
    return in_columns(rows, width, apart=2)
