"""A report as a notebook shows it."""

from __future__ import annotations

from lastiterate._digits import mu, up
from lastiterate._html import card
from lastiterate.accounting import USUAL_DELTA, PrivacyReport
from lastiterate.report.run_text import VOIDED_BY, what_is_protected, what_was_done
from lastiterate.report.summary import summary


def as_card(report: PrivacyReport) -> str:
    """The first lines of the printed report and what voids the guarantee, as HTML."""
    told = summary(report, USUAL_DELTA)
    rows = [
        (row.id, f"epsilon {up(row.epsilon)}, mu {mu(row.mu)}, advantage {up(row.advantage)}")
        for row in told.near
    ]
    lead = f"{what_was_done(report.run)} {what_is_protected(report.run)} {told.tightness}"
    notes = [
        *([told.not_included] if told.not_included else []),
        *told.qualifications,
        f"{told.release}",
        f"{VOIDED_BY} {'; '.join(told.release.voided_by)}.",
    ]
    return card(told.answer, rows, lead=lead, notes=notes)
