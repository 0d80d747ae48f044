r"""The places that an example may have in a secret order, and what the engine charges for them.

Places are grouped, from the latest to the oldest, and a group is charged as its latest place:
moving an arrival later, or making it larger, never lowers mu.  An example that takes part in none
of the steps that count has no place, which is one more.

What it costs to tell a late place from another is the subject of `hidden_place`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.rounding import at_least, at_most, ulps, up
from lastiterate.bounds import quantities
from lastiterate.bounds.shuffling.end_windows import EndWindows, end_windows
from lastiterate.bounds.shuffling.joint_transport import Worlds
from lastiterate.bounds.shuffling.mixture_divergence import Picks
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.sparse_patterns import NOTHING_SPENT, Arrivals, Spent, mus_of_few

_ALONE = 60  # latest places told apart
_GROUPS = 90  # of the others
_MOST_RELEASED = 1e9  # more noise on release, relative to a step's, is not used


def factors(run: TrainingRun) -> list[tuple[float, float]]:
    """Sensitivity factors of a receiving and a late position, for one order of data sets or both.

    u against i' or against nothing, then i or nothing against u, in arrivals.
    """
    return [(1.0, 1.0)] if run.adjacency == "replace" else [(1.0, 2.0), (2.0, 1.0)]


class Places(ABC):
    """Groups of places, from the latest to the oldest; if there may be none, that is one more.

    Tails are steps after a place, those of a group those of its latest.
    """

    def __init__(self, run: TrainingRun) -> None:
        gap, arrival = float(quantities.gaps(run)[0]), float(quantities.sensitivities(run)[0])
        noise = float(quantities.noises(run)[0])
        released = min(quantities.release_noise(run) / noise, _MOST_RELEASED)
        self._gap = gap
        self._ratio = at_least(arrival / noise, ulps=quantities.WIDENING)
        self._release = at_most(released * released, ulps=8)
        self.share = run.batches.share
        self._examples, self._size = run.batches.examples, run.batches.batch_size
        self.length = run.batches.batches_per_epoch
        self._steps = run.steps
        self.epochs = (run.steps - 1) // self.length  # over before the last one begins
        self.last = run.steps - self.epochs * self.length

    @abstractmethod
    def weights(self) -> Array:
        """The probabilities of the groups."""

    @abstractmethod
    def mus(self) -> Array:
        """mu with the example at each group of positions."""

    @abstractmethod
    def together(self, count: int, hidden: int, share: float, lent: float, late: float) -> Worlds:
        """The `Worlds` in which windows at the end of the run hide the first `hidden` groups.

        The windows have `share` of the last steps' noise.
        """

    @abstractmethod
    def picked(self, hidden: int, share: float) -> Picks:
        """Nobody changing places: the first are paid in windows with this share of noise."""

    @abstractmethod
    def moved(self, count: int, lent: float, late: float) -> Array:
        """mu of the example at each of the first `count` groups against it at the next group.

        `lent` multiplies the per-step sensitivity at the next group, `late` that at the first ones.
        """

    def picks_of(self, windows: EndWindows, own: Array, earlier: list[Arrivals]) -> Picks:
        """The `Picks` with mu `own` where not hidden, and `earlier` participations where hidden."""
        weights, hidden = self.weights(), windows.tails.size
        chances = np.bincount(windows.chosen, weights[:hidden], windows.edges.size - 1)
        return Picks(
            old=weights[hidden:],
            mus=own,
            windows=np.asarray(chances, dtype=np.float64),
            sizes=self.sizes_of(windows, 1.0),
            earlier=float(self.mus_of(earlier, windows.spent)[0]),
        )

    def sizes_of(self, windows: EndWindows, late: float) -> Array:
        return np.asarray(up(windows.sizes(self._gap) * (late * self._ratio), ulps(8)))

    def without(self, batches: int) -> float:
        """The probability of being in none of so many batches of an epoch, exactly 0 if it is."""
        return (self._examples - batches * self._size) / self._examples

    def mus_of(self, arrivals: list[Arrivals], spent: Spent = NOTHING_SPENT) -> Array:
        if not arrivals:
            return np.zeros(1)
        mus = mus_of_few(
            gap=self._gap, arrivals=arrivals, release_in_steps=self._release, spent=spent
        )
        with np.errstate(over="ignore"):
            return np.atleast_1d(up(mus * self._ratio, ulps(8)))


class Once(Places):
    """Positions of an example that has the same one in every epoch."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        seen = min(self.length, run.steps)
        self._tails, self._sizes = groups_of_places(seen)
        self._none = self.without(seen)

    def weights(self) -> Array:
        return with_one_more(self._sizes * np.float64(self.share), self._none, self._none)

    def mus(self) -> Array:
        return with_one_more(self.mus_of([self._alone(self._tails, 1.0)]), 0.0, self._none)

    def moved(self, count: int, lent: float, late: float) -> Array:
        tails = self._tails[:count]
        if count == self._tails.size:
            return self.mus_of([self._alone(tails, late)])
        seen = self._earlier(tails)
        before = Arrivals(
            tails + self.length,
            np.where(seen > 0, lent + late, 0.0),
            np.maximum(seen - 1, 0),
            self.length,
        )
        last = [Arrivals(self._tails[count], lent), Arrivals(tails, late)]
        return self.mus_of([before, *last] if self.epochs else last)

    def together(self, count: int, hidden: int, share: float, lent: float, late: float) -> Worlds:
        windows = end_windows(self._tails[:hidden], share)
        spent, lenders = windows.spent, self._tails[count:]
        own = self.mus_of([self._alone(lenders, 1.0)], spent)
        # What the late place brought in earlier epochs, as late as it may have been.
        times = [late + lent, late]
        before = [
            [Arrivals(self.length, one, self.epochs - 1, self.length)] if self.epochs else []
            for one in times
        ]
        beside = self.mus_of([*before[0], Arrivals(lenders, lent)], spent)
        alone = float(self.mus_of(before[1], spent)[0])
        weights, mus, moved = self.weights(), self.mus(), self.moved(count, lent, late)
        return Worlds(
            lenders=weights[count:],
            own=with_one_more(own, 0.0, self._none),
            beside=with_one_more(beside, alone, self._none),
            others=weights[hidden:count],
            home=mus[hidden:count],
            moved=moved[hidden:],
            hidden=weights[:hidden],
            hidden_home=mus[:hidden],
            hidden_moved=moved[:hidden],
            windows=windows.chosen,
            sizes=self.sizes_of(windows, late),
        )

    def picked(self, hidden: int, share: float) -> Picks:
        windows = end_windows(self._tails[:hidden], share)
        others = self._tails[hidden:]
        own = np.zeros(0)
        if others.size:
            own = self.mus_of([self._alone(others, 1.0)], windows.spent)
        # As late as the last arrivals of all earlier epochs may have been.
        earlier = [Arrivals(self.length, 1.0, self.epochs - 1, self.length)] if self.epochs else []
        return self.picks_of(windows, with_one_more(own, 0.0, self._none), earlier)

    def _alone(self, tails: IntArray, times: float) -> Arrivals:
        return Arrivals(tails, times, self._earlier(tails), self.length)

    def _earlier(self, tails: IntArray) -> IntArray:
        """How often places were visited before their last visit."""
        return np.asarray((self._steps - 1 - tails) // self.length)


def groups_of_places(count: int) -> tuple[IntArray, IntArray]:
    """The latest tails, one by one, then groups of them: the first of each, and how many."""
    alone = min(count, _ALONE)
    others = np.geomspace(alone, count, _GROUPS) if count > alone else np.array([count])
    edges = np.unique(np.concatenate([np.arange(alone), np.rint(others)]).astype(np.int64))
    return edges[:-1], np.diff(edges)


def with_one_more(values: Array, last: float, probability: float) -> Array:
    """And one for no place, if that is possible."""
    return np.append(values, last) if probability > 0.0 else np.asarray(values, dtype=np.float64)
