"""Checks that every step has its own batch, no row is repeated, and passes are complete."""

from __future__ import annotations

from typing import Any

from lastiterate.errors import RefusedTraining
from lastiterate.opacus import optimizer_step
from lastiterate.opacus.training_record import TrainingRecord, passes_together
from lastiterate.opacus.watched_loader import POISSON, DrawnBatches, WatchedLoader


class EpochCounter:
    """Counts the steps of the pass through the loader that the last step was in."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps
        self._pass: int | None = None  # None before the first, and for a loader that is gone
        self._next = 0  # the first batch of the pass that the next step may use
        self._draws: DrawnBatches | None = None  # those that passes are numbered in

    def count_step(
        self, optimizer: Any, record: TrainingRecord, loader: WatchedLoader | None, rows: int
    ) -> None:
        """Count a step that summed the gradients of `rows` rows."""
        if loader is None:
            record.batches = None
            record.add_reason(
                "the loader is not known, so an example may be twice in a batch: call "
                "accountant.watch(loader)"
            )
            record.passes.append(0)
            return
        if loader.draws is not self._draws:
            self._draws, self._pass = loader.draws, None
        number, per_pass = loader.draws.passes, loader.batches.per_pass
        if number == 0:
            raise RefusedTraining(
                "a step was made before the loader that make_private returned drew a batch",
                instead="iterate over that loader",
            )
        if number != self._pass:
            if record.steps and self.steps != per_pass:
                # Batches without a step may be part of the gradients of this one.
                if (
                    self._pass is not None
                    and len(loader.draws.sizes_in_pass(self._pass)) == per_pass
                ):
                    _refuse_ghost_clipping(optimizer)
                _mark_irregular(record, loader)
            if self._straddles_draws(loader, number):
                _mark_irregular(record, loader)
            self._pass, self.steps, self._next = number, 0, 0
            record.passes.append(record.passes[-1] + 1 if record.passes else 1)
        else:
            record.passes.append(record.passes[-1])
        self.steps += 1
        sizes = loader.draws.sizes_in_pass(number)
        waiting = len(sizes) - self.steps
        if waiting < 0:
            raise RefusedTraining(
                "more steps were made than batches were drawn", instead="make one step per batch"
            )
        if waiting > loader.ahead:
            _refuse_ghost_clipping(optimizer)
            _mark_irregular(record, loader)
        self._check_rows(rows, sizes)

    def _straddles_draws(self, loader: WatchedLoader, number: int) -> bool:
        """Whether passes without a step were among those that are drawn together."""
        together = passes_together(loader.batches)
        if self._pass is None:
            return (loader.earlier + number - 1) % together != 0
        return together > 1 and number != self._pass + 1

    def _check_rows(self, rows: int, sizes: list[int]) -> None:
        """Refuse a step whose number of rows is the size of no later batch of the pass.

        Batches may be drawn in advance or skipped, so any later batch of that size will do.
        """
        if rows not in sizes[self._next :]:
            raise RefusedTraining(
                f"a step summed the gradients of {rows:,} rows, but the loader drew "
                f"{sizes[min(self._next, len(sizes) - 1)]:,} examples: if rows are repeated, in "
                "collate_fn or in the loop, one example counts several times",
                instead="give the model every example of the batch once",
            )
        self._next = sizes.index(rows, self._next) + 1


def _refuse_ghost_clipping(optimizer: Any) -> None:
    if optimizer_step.is_ghost(optimizer):
        raise RefusedTraining(
            "batches were drawn without a step: with ghost clipping it cannot be seen whether "
            "their gradients were accumulated",
            instead="make one step per batch",
        )


def _mark_irregular(record: TrainingRecord, loader: WatchedLoader) -> None:
    """Record that a pass was incomplete; the next one is shuffled anew."""
    if loader.batches.kind != POISSON:
        record.regular = False
        record.add_reason("a pass through the loader was not finished, or batches were skipped")
