"""Progress lines of a fit, and a hint that one machine needs no cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

from distributed.system import MEMORY_LIMIT

from lastiterate._progress import listen
from lastiterate.dask.blocks import Blocks
from lastiterate.dask.cluster_security import is_on_this_machine
from lastiterate.run.training_run import TrainingRun

LOG = logging.getLogger("lastiterate.dask")

_FIRST, _LAST = 5.0, 60.0  # seconds between lines, at first and in the end
_LONG = 1.0  # seconds; shorter tasks have no second line
_COPIES = 3  # of the rows, which a training in memory may take for a while


@contextmanager
def progress_lines(*, verbose: bool) -> Iterator[None]:
    """Progress lines on stderr if `verbose`."""
    if not verbose:
        yield
        return
    with listen(_Lines().show):
        yield


class _Lines:
    """Progress lines: the task, the share of it that is done, and an estimate of the time left."""

    def __init__(self) -> None:
        self._what: str | None = None
        self._start_actor = self._due = 0.0
        self._between = _FIRST

    def show(self, what: str, share: float | None) -> None:
        """Print a line if it is the first of its kind, the last, or one is due."""
        now = monotonic()
        if what != self._what:
            self._what, self._start_actor, self._due, self._between = what, now, now, _FIRST
        over = share == 1.0
        if not over and now < self._due:
            return
        if not over or now - self._start_actor >= _LONG:
            self._say(what, share, now - self._start_actor)
        self._due = now + self._between
        self._between = min(2.0 * self._between, _LAST)
        if over:
            self._what = None

    def _say(self, what: str, share: float | None, waited: float) -> None:
        line = f"lastiterate: {what}"
        if share == 1.0:
            line += f", done after {waited:.0f} s"
        elif waited > 0.0:
            line += f", after {waited:.0f} s"
            if share:
                line += f" {share:.0%} done, about {waited / share - waited:.0f} s left"
        print(line, file=sys.stderr, flush=True)


def log_single_machine(workers: Iterable[str], blocks: Blocks) -> None:
    """Log a line if all workers are on this machine, where each step's messages gain nothing."""
    if not all(map(is_on_this_machine, workers)):
        return
    instead = "on a numpy.memmap of a file of rows"
    if blocks.dense and _COPIES * blocks.bytes <= MEMORY_LIMIT:
        instead = f"on X.compute(), since rows of {blocks.bytes / 1e6:,.0f} MB fit into memory"
    LOG.warning(
        "All workers are on this machine, where the messages of a step take longer than its "
        "computation: lastiterate.linear_model trains the same models faster, %s.  "
        "(verbose=True shows the progress.)",
        instead,
    )


def log_run_length(run: TrainingRun, workers: int) -> None:
    """Log how many steps are about to be made, and on how many rows each."""
    LOG.info(
        "%s steps, each on %s of %s rows, on %s workers",
        f"{run.steps:,}",
        f"{run.batches.batch_size:,}",
        f"{run.batches.examples:,}",
        workers,
    )
