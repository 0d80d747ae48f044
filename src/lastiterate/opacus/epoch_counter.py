r"""Checks that every step has its own batch, no row is repeated, and passes are complete.

**Poisson batches without a step are refused**, empty ones too.  Let a loop make steps only on
batches whose size is in a set S.  Sizes have the same law for two neighbours, because the example
in which they differ is drawn in both.  In a step that is made it is in the batch with probability
p = P(i in B | |B| in S), which is q/(1 - (1 - q)^n) where only empty batches are skipped.  To
account for batches of this rate would be wrong.  Let G_1 be the sum of the others' gradients if the
example is in the batch, and G_0 if it is not.  A step compares

.. math:: (1-p) N(G_0, \sigma^2 I) + p N(G_1 + g, \sigma^2 I) \quad\text{and}\quad
          (1-p) N(G_0, \sigma^2 I) + p N(G_1, \sigma^2 I).

Poisson accounting rests on G_0 and G_1 having one law, so that what hides g are all batches without
the example.  Under the condition they have not: of a few rare examples with gradients that point
away from g, a batch that is not empty has one of these where it has not got g, so that G_1 is
mostly 0 and G_0 is not.  Nothing then hides g but the draws of the noise.

To account for all draws, those without a step included, would be wrong too: a skipped batch adds no
noise.  With one example, steps are (1-p) times no step plus p N(g), against (1-p) times no step
plus p N(0), whose delta at epsilon is p times that of the Gaussian mechanism at epsilon: more than
that of (1-p) N(0) + p N(g) against N(0), which is p times that of the Gaussian mechanism at
log(1 + (e^epsilon - 1)/p).

A pass of which all batches were drawn and none was used was one to look at, as for an evaluation.
So is a single batch before the first step.  A pass may end early after a step.
"""

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
        loader.refuse_other_batches(number)
        if number != self._pass:
            loader.refuse_repeated_rows()
            self._refuse_unused_batches(loader, number)
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
        self._check_rows(rows, sizes, record, loader)

    def refuse_unused_batches_at_the_end(self, loader: WatchedLoader | None) -> None:
        """Refuse Poisson batches after the last step, but for one on which the loop has ended."""
        if loader is None or loader.draws is not self._draws or self._pass is None:
            return
        sizes = loader.draws.sizes_in_pass(self._pass)
        spare = loader.ahead + (self._pass not in loader.draws.ended)
        if loader.batches.kind == POISSON and len(sizes) - self.steps > spare:
            raise _unused(sizes[self.steps])

    def _refuse_unused_batches(self, loader: WatchedLoader, number: int) -> None:
        """Refuse Poisson batches of the passes before this one that no step used."""
        if loader.batches.kind != POISSON:
            return
        looked_at = 0
        for earlier in range(self._pass or loader.first, number):
            sizes = loader.draws.sizes_in_pass(earlier)
            steps = self.steps if earlier == self._pass else 0
            complete = len(sizes) == loader.batches.per_pass
            if len(sizes) - steps <= (0 if complete and steps else loader.ahead):
                continue
            if complete and not steps:
                continue
            looked_at += 1
            if self._pass is not None or looked_at > 1:
                raise _unused(sizes[steps])

    def _straddles_draws(self, loader: WatchedLoader, number: int) -> bool:
        """Whether passes without a step were among those that are drawn together."""
        together = passes_together(loader.batches)
        if self._pass is None:
            return (loader.earlier + number - 1) % together != 0
        return together > 1 and number != self._pass + 1

    def _check_rows(
        self, rows: int, sizes: list[int], record: TrainingRecord, loader: WatchedLoader
    ) -> None:
        """Refuse a step whose number of rows is the size of no later batch of the pass.

        Batches may be drawn in advance, so later ones need no step yet.
        """
        if rows not in sizes[self._next :]:
            raise RefusedTraining(
                f"a step summed the gradients of {rows:,} rows, but the loader drew "
                f"{sizes[min(self._next, len(sizes) - 1)]:,} examples: if rows are repeated, in "
                "collate_fn or in the loop, one example counts several times",
                instead="give the model every example of the batch once",
            )
        found = sizes.index(rows, self._next)
        if found > self._next:
            if loader.batches.kind == POISSON:
                raise _unused(sizes[self._next])
            _mark_irregular(record, loader)
        self._next = found + 1


def _unused(size: int) -> RefusedTraining:
    return RefusedTraining(
        f"a Poisson batch of {size:,} rows was drawn and no step was made on it, so the batches of "
        "the other steps are no Poisson batches, and an example may be in them more often",
        instead="make one step per batch: an empty batch is a step of noise alone, which its loss "
        "of nan does not harm; end a pass after a step, or by itertools.islice(loader, steps)",
    )


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
