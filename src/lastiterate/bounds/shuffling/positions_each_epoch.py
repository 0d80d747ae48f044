"""The law of an example's position where the order is drawn anew before every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.bounds.shuffling.joint_transport import PositionLaws
from lastiterate.bounds.shuffling.positions import (
    BesideWindows,
    Positions,
    ShuffledSteps,
    few_edges,
    position_groups,
    with_no_position,
)
from lastiterate.shifts.early_shifts import ShortSteps
from lastiterate.shifts.patterns import NOTHING_SPENT, Participations, Spent


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


class PositionsEachEpoch(Positions):
    """Positions of an example that has another one in every epoch; the last position counts.

    Participations in earlier epochs count as if they were at the ends of these.  A truncated last
    epoch may not contain the example; then its position in the epoch before counts.  An example
    that is in the truncated epoch counts as if it were at the end of the epoch before; or, since
    its position there is independent, as if it were at the latest of each of a few groups of
    positions, with the probability of that group.  All participations in earlier whole epochs count
    `earlier_factor` times (`earlier_epochs`).
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
        paired_weights, paired_mus = self._paired(weights[: cut.size], cut, reserved)
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
        paired_weights, paired_mus = self._paired(weights[: cut.size], cut)
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

    def _paired(
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
        """mu of the example at receiving positions, of none, and of late ones against receiving.

        The last is without the late position's last participation.  The exchanged example visits
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
