"""Rules that give every example a place, which one step after another sees."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from lastiterate._numerics.arrays import IntArray
from lastiterate.run.batch_rules.base import BatchRule, Chance, Drawn, Selection

_FOLLOW_FROM_VISITED = (
    "period",
    "places",
    "seen",
    "most_seen",
    "longest_wait",
    "selections",
)


def _said_at(cls: type, name: str) -> int:
    """How far up its bases a class finds this."""
    return next(i for i, base in enumerate(cls.__mro__) if name in vars(base))


class PlacedRule(BatchRule, abstract=True):
    """Every example has a place, and each step sees the examples of one place.

    Drawn `ONCE`, an example's place is uniform among `batches_per_epoch`, or it has none with the
    probability of being left over.  Drawn `EACH_EPOCH`, the same holds in every epoch anew, whose
    `batches_per_epoch` steps see each place once.  Places are numbered from 0.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses what was said of the steps of another rule, if this one visits as it likes."""
        own, shared = _said_at(cls, "visited"), cls.__mro__.index(PlacedRule)
        taken = [one for one in _FOLLOW_FROM_VISITED if own < _said_at(cls, one) < shared]
        if taken:
            raise TypeError(
                f"batch rule {cls.__name__} says which places are visited, but takes "
                f"{', '.join(taken)} from a rule that visits others: derive from PlacedRule"
            )
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def visited(self, steps: IntArray) -> IntArray:
        """The place that each of these steps, counted from 0, sees; -1 is none of interest."""

    @property
    def steps_per_pass(self) -> int:
        return self.batches_per_epoch

    @property
    def period(self) -> int | None:
        return None

    def places(self, steps: int) -> int:
        if self.drawn is Drawn.EACH_EPOCH or self.period is not None:
            return min(self.batches_per_epoch, steps)
        return 1 + int(self.visited(np.arange(steps)).max())

    def seen(self, place: int, steps: int) -> IntArray:
        if self.drawn is Drawn.EACH_EPOCH:
            raise ValueError("an example has another place in every epoch")
        if self.period is not None:
            return np.arange(place, steps, self.period)
        return np.flatnonzero(self.visited(np.arange(steps)) == place)

    def most_seen(self, steps: int) -> int:
        if self.drawn is Drawn.EACH_EPOCH:
            return -(-steps // self.batches_per_epoch)
        return super().most_seen(steps)

    def longest_wait(self, steps: int) -> int:
        if self.drawn is Drawn.EACH_EPOCH:
            # Who may be left over in one epoch may be so in all.
            left_over = self.examples % self.batch_size > 0
            return steps if left_over else min(2 * self.batches_per_epoch, steps)
        if self.period is not None:
            return min(self.period, steps)
        waits = (np.diff(self.seen(i, steps), append=steps) for i in range(self.places(steps)))
        return max(int(wait.max(initial=1)) for wait in waits)

    def arrangement(self, chance: Chance) -> IntArray | None:
        if self.drawn is not Drawn.ONCE:
            return None
        whole = self.batch_size * self.batches_per_epoch
        return chance.permutation(self.examples)[:whole]

    def selections(self, chance: Chance) -> Iterator[Selection]:
        for epoch in self._epochs():
            anew = self.drawn is Drawn.EACH_EPOCH
            order = chance.permutation(self.examples) if anew else None
            for place in epoch.tolist():
                block = slice(place * self.batch_size, (place + 1) * self.batch_size)
                yield block if order is None else order[block]

    def _epochs(self) -> Iterator[IntArray]:
        length = self.batches_per_epoch
        return (self.visited(np.arange(start, start + length)) for start in count(0, length))

    def _left_over(self) -> str:
        rest = self.examples % self.batch_size
        return f"; the {rest:,} left over sit out the epoch" if rest else ""


class InOrder(PlacedRule, abstract=True):
    """The places are visited in the same order every epoch."""

    @property
    def period(self) -> int | None:
        return self.batches_per_epoch

    def visited(self, steps: IntArray) -> IntArray:
        return steps % self.batches_per_epoch
