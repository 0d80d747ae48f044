r"""The law of an example's secret position in a shuffled order, and the mu of each position.

Positions are grouped from the latest to the earliest.  A group has the mu of its latest position,
because a later or larger participation never lowers mu.  An example that takes part in none of the
steps that count has no position, which is one more group.

The *tail* of a position is the number of steps after its last participation.  Late positions are
hidden in two ways: their mass is transported to earlier, *receiving* positions
(`docs/tightness.md#transport`), or they are components of a Gaussian mixture
(`docs/tightness.md#balls-and-bins`).

In short steps earlier noise hides the last participation, too (`docs/tightness.md#short-steps`).
That needs its exact step, so participations that count as later than they are do not use it.  A
group of positions still has the mu of its latest one: what hides a participation hides an earlier
one, by the shifts of the same steps, at no larger cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray, ulps, up
from lastiterate.bounds.balls_and_bins.divergence import PositionMixture
from lastiterate.bounds.shuffling.end_windows import (
    EndWindows,
    early_edges,
    early_windows,
    end_windows,
)
from lastiterate.bounds.shuffling.joint_transport import PositionLaws
from lastiterate.shifts.early_shifts import ShortSteps, early_mus
from lastiterate.shifts.patterns import NOTHING_SPENT, Participations, Spent, mus_of_few

_SINGLE_POSITIONS = 60  # the latest ones, which are not grouped
_GROUPS = 90  # of all others
FEW_GROUPS = 10  # of positions in the epoch before a truncated one


@dataclass(frozen=True)
class ShuffledSteps:
    """A shuffled run of equal steps in numbers, each rounded towards less privacy.

    `gap` is 1 minus the contraction of a step, `ratio` the per-step sensitivity over the noise of
    a step, and `release_in_steps` the variance of the noise on release over that of a step.
    `share` is the probability of one position.
    """

    gap: float
    ratio: float
    release_in_steps: float
    examples: int
    batch_size: int
    share: float
    epoch_length: int
    steps: int


@dataclass(frozen=True, eq=False)
class BesideWindows:
    """Positions that no window hides, and the law of what precedes the hidden participations."""

    weights: Array
    mus: Array
    earlier_weights: Array
    earlier_mus: Array


class Positions(ABC):
    """Groups of positions with their probabilities and mus, from the latest to the earliest."""

    def __init__(self, run: ShuffledSteps, short_steps: ShortSteps | None = None) -> None:
        self._run, self._short_steps = run, short_steps
        self.length = run.epoch_length
        self.epochs = (run.steps - 1) // self.length  # before the last one begins
        self.last_length = run.steps - self.epochs * self.length

    @abstractmethod
    def weights(self) -> Array:
        """The probabilities of the groups."""

    @abstractmethod
    def mus(self) -> Array:
        """mu with the example at each group of positions."""

    @abstractmethod
    def transport_mus(self, count: int, receiving: float, late: float) -> Array:
        """mu of the example at each of the first `count` groups against it at the next group.

        `receiving` and `late` multiply the per-step sensitivity at the next group and at the first
        ones.
        """

    @abstractmethod
    def joint_laws(
        self,
        count: int,
        hidden: int,
        noise_share: float,
        receiving: float,
        late: float,
        first_window: int = 1,
    ) -> PositionLaws:
        """The input of joint transport, of `count` late groups to all others.

        The first `hidden` groups share windows of the last steps, with `noise_share` of the noise.
        In short steps the first of them has `first_window` steps.
        """

    @property
    @abstractmethod
    def tails(self) -> IntArray:
        """The tail of each group of positions; an example without a position has none."""

    @abstractmethod
    def beside(self, hidden: int, reserved: Spent) -> BesideWindows:
        """All groups but the first `hidden`, and what precedes the last participation of these.

        All mus are without the noise that is reserved.
        """

    def revealed(self) -> tuple[Array, Array]:
        """The probabilities and mus of positions, told apart further where that is worthwhile."""
        return self.weights(), self.mus()

    def mixture(self, hidden: int, noise_share: float) -> PositionMixture:
        """The components of the mixture in which windows hide the first `hidden` groups."""
        windows = end_windows(self.tails[:hidden], noise_share)
        beside = self.beside(hidden, windows.reserved)
        weights = self.weights()[:hidden]
        in_window = np.bincount(windows.window_of, weights, windows.edges.size - 1)
        costs = up(windows.costs(self._run.gap) * self._run.ratio, ulps(8))
        return PositionMixture(
            weights=beside.weights,
            mus=beside.mus,
            window_weights=np.asarray(in_window, dtype=np.float64),
            window_costs=np.asarray(costs),
            earlier_mus=beside.earlier_mus,
            earlier_weights=beside.earlier_weights,
        )

    def window_edges(self, tails: IntArray, first: int, before: int) -> IntArray:
        """The edges of the windows of positions; none reaches back to the tail `before`."""
        if self._short_steps is None:
            return end_windows(tails, 1.0).edges
        return early_edges(tails, first=first, most=before)

    def windows(
        self,
        edges: IntArray,
        tails: IntArray,
        share: float,
        late: float,
        beside: float,
        preferring_later: float = 1.0,
    ) -> EndWindows:
        """The windows with these edges; `beside` bounds other shifts in one of their steps."""
        short_steps = self._short_steps
        if short_steps is None:
            return end_windows(tails, share)
        # No shift of a participation exceeds its sensitivity.
        largest_shift = late * short_steps.ratio + beside
        lost = float(short_steps.lost(largest_shift, times=late))
        return early_windows(
            edges, tails, share, gap=self._run.gap, lost=lost, preferring_later=preferring_later
        )

    def window_costs(self, windows: EndWindows, late: float) -> Array:
        """Standard deviations of each position's shift, for `late` times the sensitivity."""
        run = self._run
        return np.asarray(up(windows.position_costs(run.gap) * (late * run.ratio), ulps(8)))

    def mus_of_exact_last(
        self, participations: list[Participations], reserved: Spent = NOTHING_SPENT
    ) -> Array:
        """`mus_of`, where noise before the last participation hides it, too."""
        if self._short_steps is None:
            return self.mus_of(participations, reserved)
        mus = early_mus(
            self._short_steps,
            participations,
            release_in_steps=self._run.release_in_steps,
            spent=reserved,
        )
        return np.atleast_1d(mus)

    @property
    def failure(self) -> float:
        """The probability that shifts before a participation do not hide it."""
        return 0.0 if self._short_steps is None else self._short_steps.failure

    def absent(self, batches: int) -> float:
        """The probability of being in none of so many batches of an epoch, exactly 0 if it is."""
        run = self._run
        return (run.examples - batches * run.batch_size) / run.examples

    def mus_of(
        self, participations: list[Participations], reserved: Spent = NOTHING_SPENT
    ) -> Array:
        """mu of these participations, from the noise that is not reserved; rounded up."""
        if not participations:
            return np.zeros(1)
        run = self._run
        mus = mus_of_few(
            gap=run.gap,
            participations=participations,
            release_in_steps=run.release_in_steps,
            spent=reserved,
        )
        with np.errstate(over="ignore"):
            return np.atleast_1d(up(mus * run.ratio, ulps(8)))


def position_groups(count: int) -> tuple[IntArray, IntArray]:
    """The latest tail of each group of positions, and the sizes of the groups."""
    single = min(count, _SINGLE_POSITIONS)
    others = np.geomspace(single, count, _GROUPS) if count > single else np.array([count])
    edges = np.unique(np.concatenate([np.arange(single), np.rint(others)]).astype(np.int64))
    return edges[:-1], np.diff(edges)


def few_edges(count: int, groups: int = FEW_GROUPS) -> IntArray:
    """The edges of a few groups of tails up to `count`, the earlier the larger."""
    if groups < 2:
        return np.array([0, count])
    edges = np.rint(np.geomspace(1, count, min(count, groups))).astype(np.int64)
    return np.unique(np.append(0, edges))


def with_no_position(values: Array, value: float, probability: float) -> Array:
    """`values`, and one more for an example without a position, if that is possible."""
    return np.append(values, value) if probability > 0.0 else np.asarray(values, dtype=np.float64)
