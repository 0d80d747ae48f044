"""Rules that give every example a place, which one step after another sees."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from lastiterate._numerics.arrays import IntArray
from lastiterate.run.batch_rules.base import BatchRule, RandomSource, Resampling, Selection

_FOLLOW_FROM_VISITED = (
    "period",
    "position_count",
    "participations",
    "most_participations",
    "longest_wait",
    "selections",
)


def _said_at(cls: type, name: str) -> int:
    """How far up its bases a class finds this."""
    return next(i for i, base in enumerate(cls.__mro__) if name in vars(base))


class PositionedRule(BatchRule, abstract=True):
    """Every example has a place, and each step sees the examples of one place.

    Drawn `ONCE`, an example's place is uniform among `batches_per_epoch`, or it has none with the
    probability of being left over.  Drawn `EACH_EPOCH`, the same holds in every epoch anew, whose
    `batches_per_epoch` steps see each place once.  Places are numbered from 0.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses what was said of the steps of another rule, if this one visits as it likes."""
        own, shared = _said_at(cls, "position_at"), cls.__mro__.index(PositionedRule)
        taken = [one for one in _FOLLOW_FROM_VISITED if own < _said_at(cls, one) < shared]
        if taken:
            raise TypeError(
                f"batch rule {cls.__name__} says which places are visited, but takes "
                f"{', '.join(taken)} from a rule that visits others: derive from PositionedRule"
            )
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def position_at(self, steps: IntArray) -> IntArray:
        """The place that each of these steps, counted from 0, sees; -1 is none of interest."""

    @property
    def steps_per_pass(self) -> int:
        return self.batches_per_epoch

    @property
    def period(self) -> int | None:
        return None

    def position_count(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH or self.period is not None:
            return min(self.batches_per_epoch, steps)
        return 1 + int(self.position_at(np.arange(steps)).max())

    def participations(self, position: int, steps: int) -> IntArray:
        if self.resampling is Resampling.EACH_EPOCH:
            raise ValueError("an example has another place in every epoch")
        if self.period is not None:
            return np.arange(position, steps, self.period)
        return np.flatnonzero(self.position_at(np.arange(steps)) == position)

    def most_participations(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH:
            return -(-steps // self.batches_per_epoch)
        return super().most_participations(steps)

    def longest_wait(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH:
            # Who may be left over in one epoch may be so in all.
            left_over = self.examples % self.batch_size > 0
            return steps if left_over else min(2 * self.batches_per_epoch, steps)
        if self.period is not None:
            return min(self.period, steps)
        waits = (
            np.diff(self.participations(i, steps), append=steps)
            for i in range(self.position_count(steps))
        )
        return max(int(wait.max(initial=1)) for wait in waits)

    def arrangement(self, source: RandomSource) -> IntArray | None:
        if self.resampling is not Resampling.ONCE:
            return None
        whole = self.batch_size * self.batches_per_epoch
        return source.permutation(self.examples)[:whole]

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        for epoch in self._epochs():
            anew = self.resampling is Resampling.EACH_EPOCH
            order = source.permutation(self.examples) if anew else None
            for position in epoch.tolist():
                block = slice(position * self.batch_size, (position + 1) * self.batch_size)
                yield block if order is None else order[block]

    def _epochs(self) -> Iterator[IntArray]:
        length = self.batches_per_epoch
        return (self.position_at(np.arange(start, start + length)) for start in count(0, length))

    def _left_over(self) -> str:
        rest = self.examples % self.batch_size
        return f"; the {rest:,} left over sit out the epoch" if rest else ""


class InOrder(PositionedRule, abstract=True):
    """The places are visited in the same order every epoch."""

    @property
    def period(self) -> int | None:
        return self.batches_per_epoch

    def position_at(self, steps: IntArray) -> IntArray:
        return steps % self.batches_per_epoch
