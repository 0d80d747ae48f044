"""The choice of picks that are hidden together, and of their share of noise: coarse, then fine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import ulps, up
from lastiterate.bounds.shuffling.coordinate_search import best_by_coordinates
from lastiterate.bounds.shuffling.mixture_divergence import Against, Detail, Picks, PicksTogether
from lastiterate.profile.privacy_profile import PrivacyProfile

_COARSE = Detail(cells=300, step=0.05, spacing=0.6)
_FINE = Detail(cells=1500, step=0.002, spacing=0.3)
_HOPELESS = 2.0  # times what is known, at the coarse look


@dataclass(frozen=True)
class Choice:
    """The share of positions that are hidden, and the share of noise in their windows."""

    hidden: float = 0.25
    noise: float = 0.6


_VALUES = {
    "hidden": (0.01, 0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.15, 0.3, 0.45, 0.6, 0.75, 0.95),
}

Drafts = Callable[[float, float], Picks | None]
"""The picks for shares that are hidden, and of noise; None where there are none such."""


@dataclass(frozen=True)
class SomeCharged:
    """Picks given that no batch is too large, which has all but a probability `lost`.

    `alone` is what is certified of them if none is hidden behind another.
    """

    drafts: Drafts
    alone: PrivacyProfile
    lost: float


@dataclass(frozen=True)
class _PicksOrLost:
    picks: PicksTogether
    lost: float

    def delta(self, epsilon: float) -> float:
        return min(up(self.picks.delta(epsilon) + self.lost, ulps(4.0)), 1.0)


@dataclass(frozen=True)
class PicksChosen:
    """The search for one pair of laws, in one direction."""

    against: Against
    ways: Sequence[SomeCharged]

    def __call__(self, epsilon: float, delta: float) -> _PicksOrLost | None:
        """In the way that is best where none is hidden behind another."""
        at = np.array([epsilon])
        way = min(self.ways, key=lambda one: float(one.alone.deltas(at)[0]))

        def cost(choice: Choice) -> float:
            made = self._made(way, choice, epsilon, _COARSE)
            return math.inf if made is None else made.delta(epsilon)

        best, least = best_by_coordinates(Choice(), _VALUES, cost)
        return self._made(way, best, epsilon, _FINE) if least < _HOPELESS * delta else None

    def _made(
        self, way: SomeCharged, choice: Choice, epsilon: float, detail: Detail
    ) -> _PicksOrLost | None:
        picks = way.drafts(choice.hidden, choice.noise)
        if picks is None:
            return None
        return _PicksOrLost(PicksTogether(picks, self.against, epsilon, detail), way.lost)
