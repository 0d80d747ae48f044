"""A report as text that a person can read."""

from __future__ import annotations

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lastiterate._digits import mu, times, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport
from lastiterate.bounds.bound import Certainty
from lastiterate.report.summary import Summary, summary
from lastiterate.report.words import (
    COLUMNS_EXPLAINED,
    LISTED_ONLY,
    VOIDED_BY,
    VOUCHED_FOR,
    what_is_protected,
    what_was_done,
)

WIDEST = 100


def as_text(
    report: PrivacyReport,
    *,
    delta: float = USUAL_DELTA,
    at_epsilon: float | None = None,
    width: int = WIDEST,
) -> str:
    """What is certified, by which bound and why, what it rests on, what the others would need."""
    told = summary(report, delta, at_epsilon=at_epsilon)
    out = StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False)
    _lines(console, told.answer, told.beside_the_other_adjacency, told.tightness)
    console.print("")
    _lines(console, what_was_done(report.run), what_is_protected(report.run), _followed(report))
    console.print(_bounds(told))
    _lines(console, told.listed_apart, LISTED_ONLY if told.lists_more else "", COLUMNS_EXPLAINED)
    console.print("")
    console.print(Text(told.why), "", sep="\n")
    console.print(VOUCHED_FOR[report.enforced])
    console.print(_bullets(told.assumptions), "")
    console.print(Text(str(told.release)), VOIDED_BY, sep="\n")
    console.print(_bullets(told.release.voided_by))
    if told.refusals:
        console.print("", "What other bounds for such batches would need:", sep="\n")
        console.print(_refusals(told))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _followed(report: PrivacyReport) -> str:
    if report.followed is None:
        return ""
    steps, requests = report.followed
    often = "1 request" if requests == 1 else f"{requests:,} requests"
    return (
        f"{often} to be forgotten followed, with {steps:,} extra steps that saw those who stay "
        "once more: the guarantee is theirs, of all models that were published, together."
    )


def _lines(console: Console, *sentences: str) -> None:
    """Each on a line of its own; nothing for one that is empty."""
    for sentence in filter(None, sentences):
        console.print(Text(sentence))


def _bounds(told: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    certified = told.certainty is Certainty.UPPER
    table.add_column("certified bound" if certified else "bound as published, not certified")
    for heading in ("epsilon", "mu (GDP)", "advantage", "to the best"):
        table.add_column(heading, justify="right")
    for row in told.near:
        listed = row.id if row.used else f"{row.id} *"
        table.add_row(
            f"{row.id} <- used" if row.id == told.bound else listed,
            up(row.epsilon),
            mu(row.mu),
            up(row.advantage),
            times(row.ratio),
        )
    return table


def _bullets(clauses: tuple[str, ...]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for clause in clauses:
        table.add_row(" -", Text(clause))
    return table


def _refusals(told: Summary) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for refusal in told.refusals:
        needs = f"{refusal.reason.needs}; found {refusal.reason.found}"
        table.add_row(Text("\n".join(refusal.bounds)), Text(f"{needs}\n-> {refusal.reason.remedy}"))
    return table
