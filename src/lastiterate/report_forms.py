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
        from lastiterate.report.plain_text import as_text

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
        """The report, with pictures, as one page that needs nothing else.

        It needs the extra `plot`.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the page; a file that is there is replaced if it is such a page, and
            refused if it is anything else.
        delta : float
            The delta at which epsilon is stated.
        title : str
            The title of the page.

        Returns
        -------
        str or None
            The text of the page, if no path is given.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> page = li.account(run).to_html(title="Ours")  # doctest: +SKIP
        """
        from lastiterate.report.html import as_html, write_html

        if path is None:
            return as_html(self._whole, delta=delta, title=title)
        write_html(self._whole, path, delta=delta, title=title)
        return None

    def to_dp_event(self) -> Any:
        """The report as an event of `dp_accounting`, to be composed with others.

        For adjacency "zero-out" a GaussianDpEvent of 1/mu, for accountants of REPLACE_SPECIAL
        (with Poisson batches ADD_OR_REMOVE_ONE); without a mu, and for "replace", an event that
        `lastiterate.dp_accounting.LastIterateAccountant` knows.  `to_pld` loses less.  A report
        of more than a run (other releases, private selection, unlearning) has no event for
        "replace" and is refused there.  A report that includes rounding, as that of every fitted
        model, is always refused: no event holds rounding, and `to_pld` includes it.  For persons
        with several examples the event is of whole persons, and all others composed with it must
        be, too.

        Returns
        -------
        dp_accounting.DpEvent
            The event.

        Raises
        ------
        InvalidParameter
            If the report is of more than a run and its adjacency is "replace", or includes
            rounding.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> type(li.account(run).to_dp_event()).__name__
        'GaussianDpEvent'
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
        """The paragraph for a paper or a model card.

        Parameters
        ----------
        delta : float
            The delta at which epsilon is stated.
        max_examples_per_user : int, optional
            If given, the paragraph also states what group privacy gives a user with so many
            examples.
        format : {"text", "markdown", "model-card"}
            The format of the paragraph.

        Returns
        -------
        str
            The paragraph.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> "epsilon" in li.account(run).statement()
        True
        """
        from lastiterate.report.statement import statement

        return statement(
            self._whole,
            delta=delta,
            max_examples_per_user=max_examples_per_user,
            format=format,
        )

    def to_json(self, *, delta: float = USUAL_DELTA) -> str:
        """The report as JSON with stable keys.

        Parameters
        ----------
        delta : float
            The delta at which epsilon is stated.

        Returns
        -------
        str
            JSON with all that `print` shows.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> import json
        >>> json.loads(li.account(run).to_json())["bound"]
        'composition/sampled'
        """
        from lastiterate.report.summary import as_json

        return as_json(self._whole, delta=delta)
