"""The forms in which a report can be read: text, page, notebook card, JSON, statement, event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

USUAL_DELTA = 1e-5


class ReportForms:
    """Methods of a report that write it down; what writes is loaded when it is needed."""

    @property
    def _whole(self) -> Any:
        return self

    def __str__(self) -> str:
        from lastiterate.report.plain_text import as_text  # tables are made only when looked at

        return as_text(self._whole)

    def _repr_html_(self) -> str:
        from lastiterate.report.html import as_card

        return as_card(self._whole)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        delta: float = USUAL_DELTA,
        title: str = "Privacy report",
    ) -> str | None:
        """All that `print` tells, and pictures, as one page that needs nothing else.

        Its text where no path is given.  Needs the extra `plot`.
        """
        from lastiterate.report.html import as_html, write_html

        if path is None:
            return as_html(self._whole, delta=delta, title=title)
        write_html(self._whole, path, delta=delta, title=title)
        return None

    def to_dp_event(self) -> Any:
        """As an event of `dp_accounting`, to be composed with others.

        For adjacency "zero-out" a GaussianDpEvent of 1/mu, for accountants of REPLACE_SPECIAL
        (with Poisson batches ADD_OR_REMOVE_ONE); without a mu, and for "replace", an event that
        `lastiterate.dp_accounting.LastIterateAccountant` knows.  `to_pld` loses less.  A report
        of more than a run (other releases, private selection, unlearning) has no event for
        "replace" and is refused there.  For persons with several examples the event is of whole
        persons, and all others composed with it must be, too.
        """
        from lastiterate.dp_accounting import event_of

        return event_of(self._whole)

    def statement(
        self,
        *,
        delta: float = USUAL_DELTA,
        max_examples_per_user: int | None = None,
        format: str = "text",
    ) -> str:
        """The paragraph for a paper or a model card: "text", "markdown" or "model-card".

        With `max_examples_per_user`, also what group privacy gives a user with so many examples.
        """
        from lastiterate.report.statement import statement

        return statement(
            self._whole, delta=delta, max_examples_per_user=max_examples_per_user, format=format
        )

    def to_json(self, *, delta: float = USUAL_DELTA) -> str:
        """All that `print` tells, as JSON with stable keys."""
        from lastiterate.report.summary import as_json

        return as_json(self._whole, delta=delta)
