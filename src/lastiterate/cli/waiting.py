"""A bar for whoever waits at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lastiterate._numerics.progress import heard_by

if TYPE_CHECKING:
    from rich.progress import Progress


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
    def __init__(self) -> None:
        self._shown: Progress | None = None

    def show(self, what: str, share: float) -> None:
        """Draw the share of this that is done; nothing once it is all."""
        if share == 1.0:
            self.clear()
            return
        if self._shown is None:
            self._shown = _drawn(what)
        task = self._shown.task_ids[0]
        self._shown.update(task, description=what, completed=share, refresh=True)

    def clear(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


def _drawn(what: str) -> "Progress":
    from rich.console import Console
    from rich.progress import Progress  # loaded only where someone waits

    progress = Progress(
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    progress.add_task(what, total=1.0)
    progress.start()
    return progress
