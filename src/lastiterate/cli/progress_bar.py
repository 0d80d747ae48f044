"""A bar for whoever waits at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from lastiterate._progress import heard_by

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS = 0.1  # between drawings: loops may tell of many short steps


@contextmanager
def progress_bar() -> Iterator[None]:
    """On stderr while something long is computed, and gone when it is done.

    Nothing where stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    bar = _Bar()
    try:
        with heard_by(bar.show):
            yield
    finally:
        bar.clear()


class _Bar:
    """One line for each loop that is under way, the outer ones above."""

    def __init__(self) -> None:
        self._drawn: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._known: set[str] = set()
        self._due = 0.0

    def show(self, what: str, share: float) -> None:
        """Draw the share of this that is done; nothing once it is all."""
        if share == 1.0:
            self._end(what)
            return
        due = what not in self._known or monotonic() >= self._due
        if due:
            self._begin(what)
            self._due = monotonic() + _SECONDS
        if self._drawn is not None and what in self._tasks:
            self._drawn.update(self._tasks[what], completed=share, refresh=due)

    def clear(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
        self._drawn, self._tasks = None, {}

    def _begin(self, what: str) -> None:
        self._known.add(what)
        if self._drawn is None:
            self._drawn = _started()
        if what not in self._tasks:
            self._tasks[what] = self._drawn.add_task(what, total=1.0)

    def _end(self, what: str) -> None:
        if self._drawn is not None and what in self._tasks:
            self._drawn.remove_task(self._tasks.pop(what))
            if not self._tasks:
                self.clear()


def _started() -> "Progress":
    from rich.console import Console
    from rich.progress import Progress  # loaded only where someone waits

    progress = Progress(
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    progress.start()
    return progress
