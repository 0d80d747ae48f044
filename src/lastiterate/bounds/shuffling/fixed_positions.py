"""The law of an example's position where the order is drawn once, for all epochs."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.bounds.shuffling.joint_transport import PositionLaws
from lastiterate.bounds.shuffling.positions import (
    BesideWindows,
    Positions,
    ShuffledSteps,
    position_groups,
    with_no_position,
)
from lastiterate.shifts.early_shifts import ShortSteps
from lastiterate.shifts.patterns import Participations, Spent


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
