"""Line widths of a terminal, and the option that replaces files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from lastiterate._progress import listen

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NARROWEST_LINE = 60
OTHER_VERSION = 3  # an exit code: neither confirmed nor refuted here
WITH_FORCE = "add --force to replace what lastiterate wrote there"
BETWEEN_DRAWINGS = 0.1  # seconds: loops may tell of many short steps
BEFORE_THE_BAR = 0.5  # so that what is quick does not flicker
BEFORE_A_LINE = 5.0  # each line after the first waits four times as long


def line_width(widest: int) -> int:
    """The terminal's width, but at most `widest`; `widest` itself without a terminal."""
    columns = shutil.get_terminal_size(fallback=(widest, 24)).columns
    return max(min(columns, widest), _NARROWEST_LINE)


@contextmanager
def progress_bar() -> Iterator[None]:
    """A context that shows progress on stderr: a bar on terminals, else lines.

    Lines, and few of them, where stderr is not a terminal.
    """
    shown = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        with listen(shown.show):
            yield
    finally:
        shown.clear()


class _Lines:
    """Progress lines on stderr: the first after a few seconds, later ones ever more rarely."""

    def __init__(self) -> None:
        self._begun, self._next = monotonic(), BEFORE_A_LINE
        self._most: dict[str, float] = {}

    def show(self, what: str, share: float | None) -> None:
        """A line, if one is due."""
        if share == 1.0:
            self._most.pop(what, None)
            return
        if share is not None:
            self._most[what] = max(self._most.get(what, 0.0), share)
        waited = monotonic() - self._begun
        if waited < self._next:
            return
        done = f", {self._most[what]:.0%} done" if what in self._most else ""
        print(f"lastiterate: {what}{done}, after {waited:.0f} s", file=sys.stderr, flush=True)
        self._next = 4.0 * max(waited, BEFORE_A_LINE)

    def clear(self) -> None:
        """Lines stay."""


class _Bar:
    """One line: what is being done, how much of it is, and since when. It never goes back."""

    def __init__(self) -> None:
        self._drawn: Progress | None = None
        self._task: TaskID | None = None
        self._what, self._most = "", 0.0
        self._due = monotonic() + BEFORE_THE_BAR

    def show(self, what: str, share: float | None) -> None:
        """Draw the share of this that is done; nothing once it is all."""
        if share == 1.0:
            if what == self._what:
                self.clear()
            return
        if what != self._what:
            self._what, self._most = what, 0.0
        self._most = max(self._most, share or 0.0)
        if monotonic() >= self._due:
            self._draw(known=share is not None)
            self._due = monotonic() + BETWEEN_DRAWINGS

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn is not None:
            self._drawn.stop()
        self._drawn = self._task = None
        self._what = ""

    def _draw(self, *, known: bool) -> None:
        if self._drawn is None:
            self._drawn = _start_progress()
        total = 1.0 if known else None
        if self._task is None:
            self._task = self._drawn.add_task(self._what, total=total)
        self._drawn.update(
            self._task, description=self._what, total=total, completed=self._most, refresh=True
        )


def _start_progress() -> Progress:
    from rich.console import Console
    from rich.progress import (  # loaded only where someone waits
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    progress.start()
    return progress
