"""Prints what `train` did: the verdict, the accuracy, the files and what may be published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lastiterate._digits import up
from lastiterate.accounting import PrivacyReport
from lastiterate.other_releases import KINDS
from lastiterate.report.plain_text import as_text, wrapped
from lastiterate.report.run_text import certainty_text, protected_change

_INSIDE = "    "
_NOTHING_ELSE = (
    "Publish nothing else that depends on these rows: no checkpoint, no loss or score on them, no "
    "setting chosen by looking at them."
)


@dataclass(frozen=True)
class Trained:
    """A finished training, as its user is told about it."""

    report: PrivacyReport
    delta: float
    files: Mapping[Path, str]  # what each of them is
    score: str | None = None
    public: tuple[str, ...] = ()  # what was taken for public
    secret: Path | None = None

    def in_short(self, width: int) -> str:
        """The verdict, the accuracy, and what may be published."""
        return "\n".join(line for part in self._parts(width) for line in part)

    def in_full(self, width: int) -> str:
        """The whole report, then the short one."""
        return f"{as_text(self.report, delta=self.delta, width=width)}\n\n{self.in_short(width)}"

    def _parts(self, width: int) -> Iterator[list[str]]:
        report, run = self.report, self.report.run
        yield wrapped(
            f"{certainty_text(report.certainty)}: epsilon = {up(report.epsilon(self.delta))} at "
            f"delta = {self.delta:g}, {protected_change(run)}",
            width,
        )
        if self.score is not None:
            yield wrapped(self.score, width)
        yield ["", "These files may be published:"]
        longest = max(len(str(path)) for path in self.files)
        # Never wrapped: a path that is broken cannot be copied.
        yield [f"{_INSIDE}{path!s:<{longest}}   {what}" for path, what in self.files.items()]
        if report.other_releases:
            noisy = "; ".join(KINDS[one.kind].published for one in report.other_releases)
            yield wrapped(f"They also contain {noisy}.", width)
        yield wrapped(_NOTHING_ELSE, width)
        yield wrapped(f"Treated as public: {', '.join(self.public)}.", width)
        if self.secret is not None:
            yield wrapped(f"Keep secret: {self.secret}.", width)
