"""Whether every step has a batch of its own, rows are not repeated, and passes are whole."""

from __future__ import annotations

from typing import Any

from lastiterate.errors import RefusedTraining
from lastiterate.opacus import optimizer_step
from lastiterate.opacus.training_record import Watched
from lastiterate.opacus.watched_loader import POISSON, WatchedLoader


class Turns:
    """Counts the steps of the pass through the loader that the last step was in."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps
        self._pass: int | None = None  # none yet, or of a loader that is no longer there
        self._next = 0  # the first batch of the pass that may be that of the next step

    def take(self, optimizer: Any, seen: Watched, loader: WatchedLoader | None, rows: int) -> None:
        """One more step, which added up the gradients of so many rows."""
        if loader is None:
            seen.batches = None
            seen.because(
                "the loader is not known, nor that no example is twice in a batch: call "
                "accountant.watch(loader)"
            )
            seen.passes.append(0)
            return
        number, per_pass = loader.draws.passes, loader.batches.per_pass
        if number == 0:
            raise RefusedTraining(
                "a step was made before the loader that make_private returned drew a batch",
                instead="iterate over that loader",
            )
        if number != self._pass:
            if seen.steps and self.steps != per_pass:
                # Those of a whole pass that had no step may be part of this one.
                if self._pass is not None and len(loader.draws.drawn(self._pass)) == per_pass:
                    _refuse_ghosts(optimizer)
                _cut_short(seen, loader)
            self._pass, self.steps, self._next = number, 0, 0
            seen.passes.append(seen.passes[-1] + 1 if seen.passes else 1)
        else:
            seen.passes.append(seen.passes[-1])
        self.steps += 1
        sizes = loader.draws.drawn(number)
        waiting = len(sizes) - self.steps
        if waiting < 0:
            raise RefusedTraining(
                "more steps were made than batches were drawn", instead="make one step per batch"
            )
        if waiting > loader.ahead:
            _refuse_ghosts(optimizer)
            _cut_short(seen, loader)
        self._find(rows, sizes)

    def _find(self, rows: int, sizes: list[int]) -> None:
        """Refuse a step on more or fewer rows than a batch has that is still to come.

        Batches may have been drawn ahead, or skipped, so it is the next one of that size.
        """
        if rows not in sizes[self._next :]:
            raise RefusedTraining(
                f"a step added up the gradients of {rows:,} rows, but the loader drew "
                f"{sizes[min(self._next, len(sizes) - 1)]:,} examples: if rows are repeated, in "
                "collate_fn or in the loop, one example counts several times",
                instead="give the model every example of the batch once",
            )
        self._next = sizes.index(rows, self._next) + 1


def _refuse_ghosts(optimizer: Any) -> None:
    if optimizer_step.is_ghost(optimizer):
        raise RefusedTraining(
            "batches were drawn without a step: with ghost clipping it cannot be seen whether "
            "their gradients were accumulated",
            instead="make one step per batch",
        )


def _cut_short(seen: Watched, loader: WatchedLoader) -> None:
    """Chance then decides anew, before every example has had its turn."""
    if loader.batches.kind != POISSON:
        seen.regular = False
        seen.because("a pass through the loader was not finished, or batches were skipped")
