r"""The law of an example's secret position in a shuffled order, and the mu of each position.

Positions are grouped from the latest to the earliest.  A group has the mu of its latest position,
because a later or larger participation never lowers mu.  An example that takes part in none of the
steps that count has no position, which is one more group.  The order is drawn once, for all epochs
(`FixedPositions`), or anew before every epoch (`PositionsEachEpoch`).

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

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from lastiterate._numerics.powers import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    down,
    ulps,
    up,
)
from lastiterate.bounds.balls_and_bins.divergence import PositionMixture
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.early_shifts import ShortSteps, early_mus
from lastiterate.shifts.patterns import NOTHING_SPENT, Participations, Spent, mus_of_few

_SINGLE_POSITIONS = 60  # the latest ones, which are not grouped
_GROUPS = 90  # of all others
FEW_GROUPS = 10  # of positions in the epoch before a truncated one
LARGEST_NOISE_SHARE = 0.95  # of windows: the rest hides the rounding errors of a trainer
_GROWTH = 2.0  # ratio of the ends of consecutive windows
_ROUNDED_ONE = down(1.0, MILLIONS_OF_ROUNDINGS)  # least sum of probabilities


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
        """The probabilities and mus of positions, in finer groups where that is worthwhile."""
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
        """The mu as in `mus_of`, or less if noise before the last participation hides it too."""
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
        """The probability of being in none of this many batches of an epoch; 0 is exact."""
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


class FixedPositions(Positions):
    """Positions of an example that has the same one in every epoch."""

    def __init__(self, run: ShuffledSteps, short_steps: ShortSteps | None = None) -> None:
        super().__init__(run, short_steps)
        seen = min(self.length, run.steps)
        self._tails, self._sizes = position_groups(seen)
        self._none = self.absent(seen)

    def weights(self) -> Array:
        return with_no_position(self._sizes * np.float64(self._run.share), self._none, self._none)

    def mus(self) -> Array:
        mus = self.mus_of_exact_last([self._every_epoch(self._tails, 1.0)])
        return with_no_position(mus, 0.0, self._none)

    def transport_mus(self, count: int, receiving: float, late: float) -> Array:
        tails = self._tails[:count]
        if count == self._tails.size:
            return self.mus_of_exact_last([self._every_epoch(tails, late)])
        earlier_visits = self._earlier_visits(tails)
        before = Participations(
            tails + self.length,
            np.where(earlier_visits > 0, receiving + late, 0.0),
            np.maximum(earlier_visits - 1, 0),
            self.length,
        )
        last = [Participations(self._tails[count], receiving), Participations(tails, late)]
        return self.mus_of_exact_last([before, *last] if self.epochs else last)

    def joint_laws(
        self,
        count: int,
        hidden: int,
        noise_share: float,
        receiving: float,
        late: float,
        first_window: int = 1,
    ) -> PositionLaws:
        tails = self._tails[count:]
        before = int(tails[0]) if tails.size else min(self.length, self._run.steps)
        edges = self.window_edges(self._tails[:hidden], first_window, before)
        reserved = Spent(int(edges[-1]), noise_share)
        receiving_mus = self.mus_of_exact_last([self._every_epoch(tails, 1.0)], reserved)
        # The late position's participations in earlier epochs, as late as they can have been.
        both, only_late = self._ends_of_epochs(late + receiving), self._ends_of_epochs(late)
        exchanged = [*both, Participations(tails, receiving)]
        residual_mus = self.mus_of_exact_last(exchanged, reserved)
        without_receiving = float(self.mus_of(only_late, reserved)[0])
        beside = max(float(residual_mus.max(initial=0.0)), without_receiving)
        windows = self.windows(edges, self._tails[:hidden], noise_share, late, beside)
        weights, mus = self.weights(), self.mus()
        transported = self.transport_mus(count, receiving, late)
        return PositionLaws(
            receiving=weights[count:],
            receiving_mus=with_no_position(receiving_mus, 0.0, self._none),
            residual_mus=with_no_position(residual_mus, without_receiving, self._none),
            separate=weights[hidden:count],
            separate_mus=mus[hidden:count],
            separate_transport_mus=transported[hidden:],
            hidden=weights[:hidden],
            hidden_mus=mus[:hidden],
            hidden_transport_mus=transported[:hidden],
            window_of=windows.window_of,
            window_costs=self.window_costs(windows, late),
        )

    @property
    def tails(self) -> IntArray:
        return self._tails

    def beside(self, hidden: int, reserved: Spent) -> BesideWindows:
        others = self._tails[hidden:]
        mus = np.zeros(0)
        if others.size:
            mus = self.mus_of_exact_last([self._every_epoch(others, 1.0)], reserved)
        earlier_mus = self.mus_of(self._ends_of_epochs(1.0), reserved)
        mus = with_no_position(mus, 0.0, self._none)
        return BesideWindows(self.weights()[hidden:], mus, np.ones(1), earlier_mus)

    def _every_epoch(self, tails: IntArray, factor: float) -> Participations:
        return Participations(tails, factor, self._earlier_visits(tails), self.length)

    def _ends_of_epochs(self, factor: float) -> list[Participations]:
        """Participations at the ends of all epochs but the last."""
        return (
            [Participations(self.length, factor, self.epochs - 1, self.length)]
            if self.epochs
            else []
        )

    def _earlier_visits(self, tails: IntArray) -> IntArray:
        """The number of participations of each position before its last one."""
        return np.asarray((self._run.steps - 1 - tails) // self.length)


class PositionsEachEpoch(Positions):
    """Positions of an example that has another one in every epoch; the last position counts.

    Participations in earlier epochs count as if they were at the ends of these.  A truncated last
    epoch may not contain the example; then its position in the epoch before counts.  An example
    that is in the truncated epoch counts as if it were at the end of the epoch before; or, since
    its position there is independent, as if it were at the latest of each of a few groups of
    positions, with the probability of that group.  All participations in earlier whole epochs count
    `earlier_factor` times (`early_transport.earlier_factors`).
    """

    def __init__(
        self,
        run: ShuffledSteps,
        short_steps: ShortSteps | None = None,
        earlier_factor: float = 1.0,
    ) -> None:
        super().__init__(run, short_steps)
        truncated = self.last_length < self.length and self.epochs > 0
        end = self.last_length
        self._parts = [_Epoch(*position_groups(end), (end,) if truncated else ())]
        if truncated:
            tails, sizes = position_groups(self.length)
            self._parts.append(_Epoch(tails + end, sizes))
            end += self.length
            edges = few_edges(self.length)
            self._before = edges[:-1], np.diff(edges)
        whole = self.epochs - truncated
        earlier = Participations(end, earlier_factor, whole - 1, self.length)
        self._ends = [earlier] if whole else []

    def weights(self) -> Array:
        absent, weights = 1.0, []
        for part in self._parts:
            weights.append(absent * self._run.share * part.sizes)
            absent *= self.absent(int(part.sizes.sum()))
        return with_no_position(np.concatenate(weights), absent, absent)

    def mus(self) -> Array:
        mus = [
            self.mus_of_exact_last(
                [
                    *self._ends,
                    *(Participations(tail) for tail in part.others),
                    Participations(part.tails),
                ]
            )
            for part in self._parts
        ]
        none = math.prod(self.absent(int(part.sizes.sum())) for part in self._parts)
        return with_no_position(np.concatenate(mus), float(self.mus_of(self._ends)[0]), none)

    def transport_mus(self, count: int, receiving: float, late: float) -> Array:
        result: list[Array] = []
        receiving_epoch, tail = self._epoch_and_tail(count)
        for part in self._parts:
            own = Participations(part.tails[: count - sum(map(len, result))], late)
            # Against positions in the epoch before, those in that epoch are exchanged too.
            others = [Participations(one, max(late, 1.0)) for one in part.others]
            received = [] if receiving_epoch is None else [Participations(tail, receiving)]
            later = [*others, *received] if part is receiving_epoch else [*received, *others]
            result.append(self.mus_of_exact_last([*self._ends, *later, own]))
            if sum(map(len, result)) == count:
                break
        return np.concatenate(result)

    def joint_laws(
        self,
        count: int,
        hidden: int,
        noise_share: float,
        receiving: float,
        late: float,
        first_window: int = 1,
    ) -> PositionLaws:
        tails = self.tails
        before = int(tails[count]) if count < tails.size else int(tails[-1]) + 1
        edges = self.window_edges(tails[:hidden], first_window, before)
        reserved = Spent(int(edges[-1]), noise_share)
        weights, mus = self.weights(), self.mus()
        transported = self.transport_mus(count, receiving, late)
        positions = _LatePositions(weights[:count], mus[:count], transported)
        separate = positions.after(hidden)
        if self._receives_before_the_truncated_epoch(count):
            positions, separate = self._split_by_epoch_before(
                positions, hidden, weights[count:], receiving, late
            )
        receiving_mus, none, residual_mus = self._receiving_mus(count, receiving, reserved)
        beside = max(float(residual_mus.max(initial=0.0)), none)
        windows = self.windows(edges, tails[:hidden], noise_share, late, beside)
        absent = float(weights.size > tails.size)
        return PositionLaws(
            receiving=weights[count:],
            receiving_mus=with_no_position(receiving_mus, none, absent),
            residual_mus=with_no_position(residual_mus, none, absent),
            separate=separate.weights,
            separate_mus=separate.mus,
            separate_transport_mus=separate.transport_mus,
            hidden=positions.weights[:hidden],
            hidden_mus=positions.mus[:hidden],
            hidden_transport_mus=positions.transport_mus[:hidden],
            window_of=windows.window_of,
            window_costs=self.window_costs(windows, late),
        )

    @property
    def tails(self) -> IntArray:
        return np.concatenate([part.tails for part in self._parts])

    def beside(self, hidden: int, reserved: Spent) -> BesideWindows:
        mus, none, _ = self._receiving_mus(hidden, 1.0, reserved)
        weights, known = self.weights()[hidden:], float(self.weights().size > self.tails.size)
        mus = with_no_position(mus, none, known)
        if len(self._parts) == 1:
            return BesideWindows(weights, mus, np.ones(1), self.mus_of(self._ends, reserved))
        # Hidden positions of a truncated epoch take part in the epoch before, too.
        before, chances = self._positions_before()
        earlier_mus = self.mus_of([*self._ends, Participations(before)], reserved)
        cut = self._parts[0].tails[hidden:]
        paired_weights, paired_mus = self._pairs(weights[: cut.size], cut, reserved)
        return BesideWindows(
            np.append(paired_weights, weights[cut.size :]),
            np.append(paired_mus, mus[cut.size :]),
            chances,
            earlier_mus,
        )

    def revealed(self) -> tuple[Array, Array]:
        weights, mus = self.weights(), self.mus()
        if len(self._parts) == 1:
            return weights, mus
        cut = self._parts[0].tails
        paired_weights, paired_mus = self._pairs(weights[: cut.size], cut)
        return (
            np.append(paired_weights, weights[cut.size :]),
            np.append(paired_mus, mus[cut.size :]),
        )

    def _positions_before(self) -> tuple[IntArray, Array]:
        """The latest tails of groups of positions in the epoch before a truncated one.

        With their probabilities; an example in none of them is in the earliest group.
        """
        tails, sizes = self._before
        chances = self._run.share * sizes
        chances[-1] += max(1.0 - float(chances.sum()), 0.0)
        return tails + self.last_length, chances

    def _pairs(
        self, weights: Array, tails: IntArray, reserved: Spent = NOTHING_SPENT
    ) -> tuple[Array, Array]:
        """Groups in the truncated epoch, each with all groups in the epoch before."""
        before, chances = self._positions_before()
        if not tails.size:
            return np.zeros(0), np.zeros(0)
        earlier = Participations(np.tile(before, tails.size))
        own = Participations(np.repeat(tails, before.size))
        mus = self.mus_of_exact_last([*self._ends, earlier, own], reserved)
        return np.multiply.outer(weights, chances).ravel(), mus

    def _receives_before_the_truncated_epoch(self, count: int) -> bool:
        return len(self._parts) > 1 and count > self._parts[0].tails.size

    def _receiving_mus(
        self, count: int, receiving: float, reserved: Spent
    ) -> tuple[Array, float, Array]:
        """The mu of receiving positions, that of no position, and those of late positions.

        Those of late positions are against the receiving ones, and lack the late position's last
        participation.  The exchanged example visits
        the receiving position in the epoch in which the differing one is late; in the epoch before
        the differing example itself was there.
        """
        mus, residual_mus, skipped = [], [], 0
        for number, part in enumerate(self._parts):
            tails = part.tails[max(count - skipped, 0) :]
            skipped += part.tails.size
            visited = number == int(self._receives_before_the_truncated_epoch(count))
            earlier = [*self._ends, *(Participations(tail) for tail in part.others)]
            if tails.size:
                mus.append(self.mus_of_exact_last([*earlier, Participations(tails)], reserved))
                factor = receiving if visited else 1.0
                residual_mus.append(
                    self.mus_of_exact_last([*earlier, Participations(tails, factor)], reserved)
                )
        none = float(self.mus_of(self._ends, reserved)[0])
        empty = [np.zeros(0)]
        return np.concatenate(mus or empty), none, np.concatenate(residual_mus or empty)

    def _split_by_epoch_before(
        self,
        positions: _LatePositions,
        hidden: int,
        receiving: Array,
        receiving_sensitivity: float,
        late: float,
    ) -> tuple[_LatePositions, _LatePositions]:
        """All late positions and the separate ones, split by the position before the last epoch.

        A position in the truncated epoch is not exchanged in the epoch before if it is at a
        receiving position there.  Else it is at one of a few groups of late positions there.
        """
        last, before = self._parts
        size = last.tails.size
        absent = self.absent(int(last.sizes.sum()))
        at_receiving = min(float(receiving.sum()) / absent, 1.0)
        number = positions.weights.size - size
        latest = [Participations(before.tails[number])] if number < before.tails.size else []
        kept = _LatePositions(
            positions.weights[:size] * at_receiving,
            self.mus_of_exact_last([*self._ends, *latest, Participations(last.tails)]),
            self.mus_of_exact_last([*self._ends, *latest, Participations(last.tails, late)]),
        )
        elsewhere = self._late_in_both(positions, number, receiving_sensitivity, late)
        every = kept.and_then(positions.after(size))
        return every, every.after(hidden).and_then(elsewhere)

    def _late_in_both(
        self, positions: _LatePositions, number: int, receiving: float, late: float
    ) -> _LatePositions:
        """Positions in the truncated epoch after one of the first `number` groups before it.

        Against a receiving position before it, the example is exchanged in both epochs.
        """
        last, before = self._parts
        size, tails = last.tails.size, before.tails[:number]
        if not number:
            return _LatePositions(np.zeros(0), np.zeros(0), np.zeros(0))
        first = np.unique(np.searchsorted(tails - self.last_length, self._before[0]))
        first = first[first < number]
        chances = self._run.share * np.add.reduceat(before.sizes[:number], first)
        earlier = np.tile(tails[first], size)
        own = np.repeat(last.tails, first.size)
        received = []
        if number < before.tails.size:
            received = [Participations(int(before.tails[number]), receiving)]
        return _LatePositions(
            np.multiply.outer(positions.weights[:size], chances).ravel(),
            self.mus_of_exact_last([*self._ends, Participations(earlier), Participations(own)]),
            self.mus_of_exact_last(
                [
                    *self._ends,
                    *received,
                    Participations(earlier, late),
                    Participations(own, late),
                ]
            ),
        )

    def _epoch_and_tail(self, number: int) -> tuple[_Epoch | None, int]:
        """The epoch and tail of a group of positions, counted from the latest."""
        for part in self._parts:
            if number < part.tails.size:
                return part, int(part.tails[number])
            number -= part.tails.size
        return None, 0


@dataclass(frozen=True)
class _Epoch:
    """Groups of positions in one epoch, all of which also take part at the tails `others`."""

    tails: IntArray
    sizes: IntArray
    others: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class _LatePositions:
    """Late positions: probabilities, mus, and mus against a receiving position."""

    weights: Array
    mus: Array
    transport_mus: Array

    def after(self, count: int) -> _LatePositions:
        return _LatePositions(self.weights[count:], self.mus[count:], self.transport_mus[count:])

    def and_then(self, other: _LatePositions) -> _LatePositions:
        return _LatePositions(
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.mus, other.mus]),
            np.concatenate([self.transport_mus, other.transport_mus]),
        )


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
    """`values`, and `value` for an example without a position, unless its probability is 0."""
    return np.append(values, value) if probability > 0.0 else np.asarray(values, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class PositionLaws:
    """The probabilities of the example's possible positions, and the mus of each.

    `receiving` positions have `receiving_mus`, and `residual_mus` for a hidden late position
    against them without its last participation.  `separate` late positions are transported one by
    one: they have `separate_mus`, and `separate_transport_mus` against any receiving position.  So
    do the `hidden` late positions, which may be transported together: position t uses the window
    `window_of[t]`, in which its shift has the cost `window_costs[t]`.
    """

    receiving: Array
    receiving_mus: Array
    residual_mus: Array
    separate: Array
    separate_mus: Array
    separate_transport_mus: Array
    hidden: Array
    hidden_mus: Array
    hidden_transport_mus: Array
    window_of: IntArray
    window_costs: Array

    def __post_init__(self) -> None:
        every = np.concatenate([self.receiving, self.separate, self.hidden])
        valid = self.receiving.size and np.all(every >= 0.0) and np.sum(self.receiving) > 0.0
        if not (valid and np.sum(every) >= _ROUNDED_ONE):
            raise InvalidParameter(
                "receiving", self.receiving, must_be="probabilities that sum to 1 with the others"
            )

    def retained_shares(self, epsilon: float, multiplier: float) -> Array:
        """The share of each hidden position that is best not transported, roughly."""
        transported = np.maximum(self.hidden_transport_mus, self.hidden_mus)
        gained = self.hidden_mus * (multiplier - transported + self.hidden_mus / 2)
        return np.asarray(np.exp(np.minimum(epsilon - gained, 0.0)))


@dataclass(frozen=True, eq=False)
class BesideWindows:
    """Positions that no window hides, and the law of what precedes the hidden participations."""

    weights: Array
    mus: Array
    earlier_weights: Array
    earlier_mus: Array


@dataclass(frozen=True, eq=False)
class EndWindows:
    r"""Disjoint windows of the last steps, each with noise of its own that hides participations.

    Window i has the tails from edges[i] to edges[i + 1] - 1, and `share`, :math:`\theta`, of the
    noise of its steps.  The last participation of a late position, with tails[k] steps after it, is
    shifted away inside the window `window_of[k]`, which must not begin before that participation.
    Shifts in different windows use independent noise; everything else has a share
    :math:`1 - \theta` of the noise of these steps.

    Let c be the contraction of a step.  In units of the end of the run, a participation with tail k
    has size :math:`c^k`, and a step with tail :math:`\tau` in a window W has the reserved variance
    :math:`\theta c^{2\tau}`.  Shifts in proportion to that variance cost a participation that is
    not later than W at most

    .. math:: \rho_W = c^{\max W} \Big/ \sqrt{\textstyle\theta \sum_{\tau \in W} c^{2\tau}}

    standard deviations for each unit of per-step sensitivity (`docs/tightness.md#joint-transport`).

    Short steps keep a part of earlier noise, at least l' in each step (`shifts.early_shifts`), and
    lose at most `lost`.  Then a window may contain the participation, and its steps before it count
    with :math:`l'^{2i}`, i the number of steps from one to the other: every position has a cost of
    its own.  Where `lost` is None, windows contain no participation.
    """

    edges: IntArray
    share: float
    tails: IntArray
    window_of: IntArray
    lost: float | None = None

    def __post_init__(self) -> None:
        disjoint = self.edges[0] >= 0 and bool(np.all(np.diff(self.edges) > 0))
        if not (disjoint and 0.0 < self.share <= 1.0):
            raise InvalidParameter("edges", self.edges, must_be="increasing, with a share of noise")
        known = np.all((self.window_of >= 0) & (self.window_of < self.edges.size - 1))
        latest = 1 if self.lost is None else 0  # the edge that must not be before a participation
        if not (known and np.all(self.edges[self.window_of + latest] - latest <= self.tails)):
            raise InvalidParameter(
                "window_of", self.window_of, must_be="windows after the participations"
            )

    @property
    def reserved(self) -> Spent:
        """The share of the last steps' noise that nothing else may use."""
        return Spent(int(self.edges[-1]), self.share)

    def costs(self, gap: float) -> Array:
        """rho of each window for contraction 1 - `gap` and sensitivity and noise 1, rounded up."""
        log_c = log_of(gap)
        counts = np.diff(self.edges)
        masses = np.exp(logs_of_powers(log_c, counts - 1))
        variances = self.share * sums_of_powers(2 * log_c, counts)
        return np.asarray(up(masses / np.sqrt(variances), MILLIONS_OF_ROUNDINGS) + TINY)

    def position_costs(self, gap: float) -> Array:
        """rho of each position in its window, as `costs` if no window contains a position."""
        if self.lost is None:
            return np.asarray(self.costs(gap)[self.window_of])
        return self._costs_in(self.window_of, gap, self.lost)

    def _costs_in(self, windows: IntArray, gap: float, lost: float) -> Array:
        """rho of each position in any window that does not end before it, rounded up."""
        log_c = log_of(gap)
        first, last = self.edges[windows], self.edges[windows + 1] - 1
        since = np.minimum(self.tails, last) - first + 1
        before = np.maximum(last - self.tails, 0)
        scale = np.exp(logs_of_powers(2 * log_c, self.tails - first))
        earlier: Array | float = 0.0
        if lost < 1.0:
            log_kept = log_of(lost)
            earlier = math.exp(2 * log_kept) * sums_of_powers(2 * log_kept, before)
        variances = self.share * (scale * earlier + sums_of_powers(2 * log_c, since))
        return np.asarray(up(np.sqrt(scale / variances), MILLIONS_OF_ROUNDINGS) + TINY)

    def with_least_costs(self, gap: float, preferring_later: float = 1.0) -> EndWindows:
        """The same windows, each position in the cheaper of its own and the next later one.

        The later one may be so many times as expensive: it has fewer positions.
        """
        assert self.lost is not None
        own, later = self.window_of, np.maximum(self.window_of - 1, 0)
        costs = self._costs_in(later, gap, self.lost)
        prefers_later = costs < preferring_later * self._costs_in(own, gap, self.lost)
        return replace(self, window_of=np.where(prefers_later, later, own))


def end_windows(tails: IntArray, share: float) -> EndWindows:
    """Windows that double in size with their age; each tail has the oldest window it may use."""
    ends = _doubling(1, int(tails.max()) + 1)
    window_of = np.searchsorted(ends[1:] - 1, tails, side="right") - 1
    return EndWindows(ends[: int(window_of.max()) + 2], share, tails, window_of)


def early_edges(tails: IntArray, *, first: int, most: int) -> IntArray:
    """The edges of windows for short steps: the first ends at `first`, and none beyond `most`."""
    ends = _doubling(max(first, 1), int(tails.max()) + 1)
    return np.unique(np.minimum(ends, max(most, 1)))


def geometric_edges(first: int, last: int) -> IntArray:
    """The edges of windows from `first` steps on, each next about twice as large, up to `last`."""
    first = min(first, last)
    count = max(round(math.log(last / first, _GROWTH)), 0)
    return np.unique(np.append(0, np.rint(np.geomspace(first, last, count + 1)).astype(np.int64)))


def early_windows(
    edges: IntArray,
    tails: IntArray,
    share: float,
    *,
    gap: float,
    lost: float,
    preferring_later: float = 1.0,
) -> EndWindows:
    """Windows for steps that lose at most `lost` of earlier noise; they may contain positions."""
    around = np.minimum(np.searchsorted(edges, tails, side="right"), edges.size - 1) - 1
    windows = EndWindows(edges, share, tails, around, lost)
    return windows.with_least_costs(gap, preferring_later)


def _doubling(first: int, last: int) -> IntArray:
    """Edges 0, first, .., each next about twice as large, up to at least `last`."""
    edges = [0, first]
    while edges[-1] < last:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _GROWTH)))
    return np.array(edges)
