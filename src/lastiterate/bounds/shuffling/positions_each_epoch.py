"""Places of an example where the order is drawn anew before every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate.bounds.shuffling.end_windows import end_windows
from lastiterate.bounds.shuffling.joint_transport import Worlds
from lastiterate.bounds.shuffling.mixture_divergence import Picks
from lastiterate.bounds.shuffling.positions import Places, groups_of_places, with_one_more
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.sparse_patterns import Arrivals, Spent


@dataclass(frozen=True)
class _Epoch:
    """Places in one epoch, all of which also have these others."""

    tails: IntArray
    sizes: IntArray
    others: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class _Late:
    """Places that borrow: what they are charged at home, and against a lender."""

    weights: Array
    home: Array
    moved: Array

    def after(self, count: int) -> _Late:
        return _Late(self.weights[count:], self.home[count:], self.moved[count:])

    def and_then(self, other: _Late) -> _Late:
        return _Late(
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.home, other.home]),
            np.concatenate([self.moved, other.moved]),
        )


class EachEpoch(Places):
    """Another place in every epoch, of which the last counts.

    In an epoch that is cut short an example may have none; then that in the epoch before counts,
    where those with a place in the last one are charged at the end.
    """

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        cut = self.last < self.length and self.epochs > 0
        end = self.last
        self._parts = [_Epoch(*groups_of_places(end), (end,) if cut else ())]
        if cut:
            tails, sizes = groups_of_places(self.length)
            self._parts.append(_Epoch(tails + end, sizes))
            end += self.length
        whole = self.epochs - cut
        self._ends = [Arrivals(end, 1.0, whole - 1, self.length)] if whole else []

    def weights(self) -> Array:
        absent, weights = 1.0, []
        for part in self._parts:
            weights.append(absent * self.share * part.sizes)
            absent *= self.without(int(part.sizes.sum()))
        return with_one_more(np.concatenate(weights), absent, absent)

    def mus(self) -> Array:
        alone = [
            self.mus_of(
                [*self._ends, *(Arrivals(one) for one in part.others), Arrivals(part.tails)]
            )
            for part in self._parts
        ]
        none = math.prod(self.without(int(part.sizes.sum())) for part in self._parts)
        return with_one_more(np.concatenate(alone), float(self.mus_of(self._ends)[0]), none)

    def moved(self, count: int, lent: float, late: float) -> Array:
        result: list[Array] = []
        lending, tail = self._place(count)
        for part in self._parts:
            own = Arrivals(part.tails[: count - sum(map(len, result))], late)
            # Against places in the epoch before, those in that epoch are exchanged too.
            others = [Arrivals(one, max(late, 1.0)) for one in part.others]
            lender = [] if lending is None else [Arrivals(tail, lent)]
            later = [*others, *lender] if part is lending else [*lender, *others]
            result.append(self.mus_of([*self._ends, *later, own]))
            if sum(map(len, result)) == count:
                break
        return np.concatenate(result)

    def together(self, count: int, hidden: int, share: float, lent: float, late: float) -> Worlds:
        tails = np.concatenate([part.tails for part in self._parts])
        windows = end_windows(tails[:hidden], share)
        weights, mus, moved = self.weights(), self.mus(), self.moved(count, lent, late)
        places = _Late(weights[:count], mus[:count], moved)
        others = places.after(hidden)
        if self._borrows_before_the_cut(count):
            places, others = self._known_before(places, hidden, weights[count:], late)
        own, beside = self._lenders(count, lent, windows.spent)
        return Worlds(
            lenders=weights[count:],
            own=with_one_more(own[0], own[1], float(weights.size > tails.size)),
            beside=with_one_more(beside, own[1], float(weights.size > tails.size)),
            others=others.weights,
            home=others.home,
            moved=others.moved,
            hidden=places.weights[:hidden],
            hidden_home=places.home[:hidden],
            hidden_moved=places.moved[:hidden],
            windows=windows.chosen,
            sizes=self.sizes_of(windows, late),
        )

    def picked(self, hidden: int, share: float) -> Picks:
        """The `Picks`; a cut epoch's and hidden positions are charged the epoch before, too."""
        tails = np.concatenate([part.tails for part in self._parts])
        windows = end_windows(tails[:hidden], share)
        (own, none), _ = self._lenders(hidden, 1.0, windows.spent)
        earlier = [*self._ends, *(Arrivals(one) for one in self._parts[0].others)]
        some = float(self.weights().size > tails.size)
        return self.picks_of(windows, with_one_more(own, none, some), earlier)

    def _borrows_before_the_cut(self, count: int) -> bool:
        return len(self._parts) > 1 and count > self._parts[0].tails.size

    def _lenders(self, count: int, lent: float, spent: Spent) -> tuple[tuple[Array, float], Array]:
        """mu of receiving positions, of no position, and of receiving ones beside late ones.

        u visits a lender in the epoch in which i is late; a lender in the epoch before is where i
        was all the same.
        """
        own, beside, skipped = [], [], 0
        for number, part in enumerate(self._parts):
            lenders = part.tails[max(count - skipped, 0) :]
            skipped += part.tails.size
            visited = number == int(self._borrows_before_the_cut(count))
            seen = [*self._ends, *(Arrivals(one) for one in part.others)]
            if lenders.size:
                own.append(self.mus_of([*seen, Arrivals(lenders)], spent))
                times = lent if visited else 1.0
                beside.append(self.mus_of([*seen, Arrivals(lenders, times)], spent))
        none = float(self.mus_of(self._ends, spent)[0])
        empty = [np.zeros(0)]
        return (np.concatenate(own or empty), none), np.concatenate(beside or empty)

    def _known_before(
        self, places: _Late, hidden: int, lenders: Array, late: float
    ) -> tuple[_Late, _Late]:
        """Late positions and those not hidden, split by the position before the cut epoch."""
        cut, before = self._parts
        size = cut.tails.size
        absent = self.without(int(cut.sizes.sum()))
        old = min(float(lenders.sum()) / absent, 1.0)
        number = places.weights.size - size
        latest = [Arrivals(before.tails[number])] if number < before.tails.size else []
        home = self.mus_of([*self._ends, *latest, Arrivals(cut.tails)])
        moved = self.mus_of([*self._ends, *latest, Arrivals(cut.tails, late)])
        known = _Late(places.weights[:size] * old, home, moved)
        elsewhere = _Late(
            places.weights[:size] * (1.0 - old), places.home[:size], places.moved[:size]
        )
        rest = places.after(size)
        every = known.and_then(rest)
        return every, every.after(hidden).and_then(elsewhere)

    def _place(self, number: int) -> tuple[_Epoch | None, int]:
        """The epoch and tail of a group of places, counted from the latest."""
        for part in self._parts:
            if number < part.tails.size:
                return part, int(part.tails[number])
            number -= part.tails.size
        return None, 0
