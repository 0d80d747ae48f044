"""The choice of late places, of those hidden together, and of shares, from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtri

from lastiterate.bounds.shuffling.coordinate_search import best_by_coordinates
from lastiterate.bounds.shuffling.joint_transport import Detail, Together, Worlds

_COARSE = Detail(lenders=8, knots=2, cells=500, step=0.25)
_FINE = Detail(lenders=40, knots=1, cells=4000, step=0.1)
_MOST_REMEMBERED = 64


@dataclass(frozen=True)
class Choice:
    """The shares of positions that are late, of these that are hidden, and of the windows' noise.

    What stays at home is as if loans were `dearer`.
    """

    late: float = 0.35
    hidden: float = 0.08
    noise: float = 0.95
    dearer: float = 0.0


_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.2, 0.35, 0.55),
    "hidden": (0.01, 0.03, 0.08, 0.2, 0.45),
    "dearer": (-0.4, -0.2, 0.0, 0.3),
    "noise": (0.3, 0.6, 0.95, 1.0),
}

Drafts = Callable[[float, float, float], Worlds | None]
"""The worlds for shares that are late, hidden, and of noise; None where there are none such."""


class _Remembered:
    """Drafts that were asked for before; unlike a cache of functools', it can be saved."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts
        self._known: dict[tuple[float, float, float], Worlds | None] = {}

    def __call__(self, borrowing: float, hidden: float, noise: float) -> Worlds | None:
        asked = (borrowing, hidden, noise)
        if asked not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[asked] = self._drafts(*asked)
        return self._known[asked]


class LendersChosen:
    """The search where late places borrow; it remembers drafts, and can be saved."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = _Remembered(drafts)

    def __call__(self, epsilon: float, delta: float) -> Together | None:
        """From one choice to better ones, one coordinate after the other."""
        start = self._made(Choice(), epsilon, -float(ndtri(delta)), _COARSE)
        if start is None:
            return None
        start.delta(epsilon)
        price = start.price

        def value(choice: Choice) -> float:
            made = self._made(choice, epsilon, price, _COARSE)
            return math.inf if made is None else made.delta(epsilon)

        best, least = best_by_coordinates(Choice(), _VALUES, value)
        return self._made(best, epsilon, price, _FINE) if least < delta else None

    def _made(
        self, choice: Choice, epsilon: float, price: float, detail: Detail
    ) -> Together | None:
        worlds = self._drafts(choice.late, choice.hidden, choice.noise)
        if worlds is None:
            return None
        return Together(worlds, worlds.staying(epsilon, price + choice.dearer), epsilon, detail)
