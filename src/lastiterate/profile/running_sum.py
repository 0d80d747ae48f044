"""A sum of independent losses that grows: one more costs as much however many there are.

The product of transforms is kept, on a grid with room for several times as much.  Once the sum
outgrows it, or a result is taken back, all are transformed anew.  Any grid gives an upper bound:
what lies beyond its end is counted as infinite.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence

from lastiterate.profile.gaussian_mixture_pld import LossCells
from lastiterate.profile.pld_convolution import (
    LossSum,
    Reach,
    Repeated,
    SummedLossesProfile,
    reach_of,
)

_ROOM = 4  # how many times as much a new grid has room for
_BEYOND = -37.0  # the logarithm of the mass beyond the grid from which on a wider one is made

Kind = Callable[[str], Sequence[LossCells]]


class RunningSum:
    """Independent results of kinds that `losses_of` knows by their names."""

    def __init__(self, losses_of: Kind) -> None:
        self._losses_of = losses_of
        self._times: Counter[str] = Counter()
        self._sums: list[LossSum] = []  # one for each direction; none until they are asked for

    def __len__(self) -> int:
        return len(self._times)

    def add(self, kind: str, times: int) -> None:
        """Include more results of a kind; fewer if `times` is below 0."""
        self._times[kind] += times
        if self._times[kind] == 0:
            del self._times[kind]
        if not self._sums:
            return
        losses = self._losses_of(kind)
        if times < 0 or len(losses) > len(self._sums):
            self._sums = []
            return
        _include(self._sums, Repeated(losses, times))

    def profile(self, more: Sequence[Repeated]) -> SummedLossesProfile:
        """The guarantee of all of them and of these."""
        sums = self._with(more)
        if not sums or any(one.log_mass_beyond > _BEYOND for one in sums):
            self._sums = self._made_anew(more)
            sums = self._with(more)
        return SummedLossesProfile.of_sums(sums)

    def _with(self, more: Sequence[Repeated]) -> list[LossSum]:
        if any(len(one.directions) > len(self._sums) for one in more):
            return []
        sums = [copy.copy(one) for one in self._sums]
        for one in more:
            _include(sums, one)
        return sums

    def _made_anew(self, more: Sequence[Repeated]) -> list[LossSum]:
        own = [Repeated(self._losses_of(kind), times) for kind, times in self._times.items()]
        ways = max(len(one.directions) for one in [*own, *more])
        sums = [
            LossSum(_roomy([(_way(one, way), one.times) for one in [*own, *more]]))
            for way in range(ways)
        ]
        for one in own:
            _include(sums, one)
        return sums


def _include(sums: Sequence[LossSum], result: Repeated) -> None:
    for way, one in enumerate(sums):
        one.include(_way(result, way), result.times)


def _way(result: Repeated, way: int) -> LossCells:
    """The losses of one direction; a result that has one only is the same in both."""
    return result.directions[way % len(result.directions)]


def _roomy(parts: Sequence[tuple[LossCells, int]]) -> Reach:
    """The reach of all from as many as there are to several times as many."""
    now = reach_of(parts)
    later = reach_of([(cells, _ROOM * times) for cells, times in parts])
    low, high = min(now.low, later.low), max(now.high, later.high)
    return Reach(low, high, later.tilt, later.mild, max(now.most, later.most))
