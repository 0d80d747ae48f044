"""Places hidden together, by whatever choice of places, windows and shares is best.

Every choice is valid.  So that the same question always has the same answer, epsilons are looked at
on a lattice, and a stretch of it shares a choice, which is looked for in its middle; in
between, delta is convex in e^epsilon, so that chords lie above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, up
from lastiterate.profile.privacy_profile import PrivacyProfile

_SPACING = 0.01  # logarithm, of the lattice
_STRETCH, _LONG_STRETCH = 8, 32  # places of it; the long ones where many are asked for
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-4, 30.0  # for which a choice is looked for
_FEW = 4  # epsilons that are looked at one by one
_FAR_BELOW, _FAR_ABOVE = 1e-12, 0.5  # deltas that are not worth the search


class Chosen(Protocol):
    """One choice, valid for all epsilons."""

    def delta(self, epsilon: float) -> float:
        """Rounded up."""


class Search(Protocol):
    """The way to a choice."""

    def __call__(self, epsilon: float, delta: float) -> Chosen | None:
        """One that is good at this epsilon; None if nothing below this delta is found."""


class HiddenTogetherProfile(PrivacyProfile):
    """The least of `alone`, where none is hidden behind another, and of hiding some together.

    Each of `directions` searches for a choice for one order of the data sets; the worse of them
    counts.
    """

    def __init__(self, alone: PrivacyProfile, directions: Sequence[Search]) -> None:
        self.alone = alone
        self._directions = tuple(directions)
        self._choices: dict[tuple[int, int], list[Chosen] | None] = {}
        self._on_lattice: dict[tuple[int, int], float] = {}

    def __repr__(self) -> str:
        return f"HiddenTogetherProfile({self.alone!r})"

    def deltas(self, epsilons: Array) -> Array:
        alone = self.alone.deltas(epsilons)
        stretch = _STRETCH if epsilons.size <= _FEW else _LONG_STRETCH
        inside = (epsilons > _LEAST_EPSILON) & (epsilons < _LARGEST_EPSILON)
        together = np.ones(epsilons.shape)
        together[inside] = self._between(epsilons[inside], stretch)
        return np.asarray(np.minimum(alone, together))

    def epsilon(self, delta: float) -> float:
        alone = self.alone.epsilon(delta)
        if not (_LEAST_EPSILON < alone < _LARGEST_EPSILON and delta > _FAR_BELOW):
            return alone
        high = math.ceil(math.log(alone) / _SPACING)  # where `alone` is enough
        low = (high // _STRETCH) * _STRETCH - 1
        while self._at(low, _STRETCH) <= delta:
            high, low = low, low - _STRETCH // 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._at(middle, _STRETCH) <= delta:
                high = middle
            else:
                low = middle
        above, below = self._at(low, _STRETCH), self._at(high, _STRETCH)
        if not below <= delta < above:  # the end at `alone` need not do
            return alone
        ends = [math.expm1(math.exp(place * _SPACING)) for place in (low, high)]
        found = math.log1p(ends[0] + (ends[1] - ends[0]) * (above - delta) / (above - below))
        return min(up(found, THOUSANDS_OF_ROUNDINGS), alone)

    def cheap(self) -> PrivacyProfile:
        """`alone`: a search for every epsilon would take seconds for a whole curve."""
        return self.alone

    def renyi(self, order: float) -> float:
        """As for `alone`."""
        return self.alone.renyi(order)

    def gdp(self) -> float:
        """As for `alone`: as epsilon grows the most exposed place alone counts."""
        return self.alone.gdp()

    def _between(self, epsilons: Array, stretch: int) -> Array:
        """The chords between the places of the lattice around them."""
        below = np.floor(np.log(epsilons) / _SPACING)
        places, index = np.unique(np.concatenate([below, below + 1.0]), return_inverse=True)
        deltas = np.array([self._at(int(place), stretch) for place in places])
        low, high = index[: below.size], index[below.size :]
        ends = np.expm1(np.exp(places * _SPACING))
        # Rounding may put one beyond an end, where the chord is no bound.
        part = np.clip((np.expm1(epsilons) - ends[low]) / (ends[high] - ends[low]), 0.0, 1.0)
        chords = (1.0 - part) * deltas[low] + part * deltas[high]
        return np.asarray(up(chords, THOUSANDS_OF_ROUNDINGS))

    def _at(self, place: int, stretch: int) -> float:
        key = place, stretch
        if key not in self._on_lattice:
            epsilon = math.exp(place * _SPACING)
            found = self._near(place // stretch, stretch)
            deltas = [1.0] if found is None else [one.delta(epsilon) for one in found]
            # Where arithmetic fails nothing is promised.
            known = all(delta <= 1.0 for delta in deltas)
            self._on_lattice[key] = max(deltas) if known else 1.0
        return self._on_lattice[key]

    def _near(self, number: int, stretch: int) -> list[Chosen] | None:
        """A choice for each direction, None where one of them has none."""
        key = number, stretch
        if key not in self._choices:
            epsilon = math.exp((number + 0.5) * stretch * _SPACING)
            alone = float(self.alone.deltas(np.array([epsilon]))[0])
            found = []
            if _FAR_BELOW < alone < _FAR_ABOVE:
                found = [search(epsilon, alone) for search in self._directions]
            known = [one for one in found if one is not None]
            self._choices[key] = known if known and len(known) == len(found) else None
        return self._choices[key]
