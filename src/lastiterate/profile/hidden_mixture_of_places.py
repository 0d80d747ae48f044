"""Places hidden together, by whatever choice of places, windows and shares is best.

Every choice is valid.  So that the same question always has the same answer, epsilons are looked at
on a lattice, and a stretch of it shares a choice, which is looked for in its middle; in
between, delta is convex in e^epsilon, so that chords lie above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, up
from lastiterate.profile.hidden_place import HiddenPlaceProfile
from lastiterate.profile.hidden_together import Detail, Together, Worlds
from lastiterate.profile.profile import PrivacyProfile

_COARSE = Detail(lenders=8, knots=2, cells=500, step=0.25)
_FINE = Detail(lenders=40, knots=1, cells=4000, step=0.1)
_SPACING = 0.01  # logarithm, of the lattice
_MOST_REMEMBERED = 64
_STRETCH, _LONG_STRETCH = 8, 32  # places of it; the long ones where many are asked for
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-4, 30.0  # for which a choice is looked for
_FEW = 4  # epsilons that are looked at one by one
_FAR_BELOW, _FAR_ABOVE = 1e-12, 0.5  # deltas that are not worth the search


@dataclass(frozen=True)
class Choice:
    """Of all places a share is late, of these a share hidden, in windows with a share of noise.

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


class HiddenTogetherProfile(PrivacyProfile):
    """The least of `alone`, where places are moved one by one, and of hiding some together.

    Each of `directions` drafts worlds for one order of the data sets; the worse of them counts.
    """

    def __init__(self, alone: HiddenPlaceProfile, directions: Sequence[Drafts]) -> None:
        self.alone = alone
        self._directions = [_Remembered(drafts) for drafts in directions]
        self._choices: dict[tuple[int, int], list[Together] | None] = {}
        self._on_lattice: dict[tuple[int, int], float] = {}

    def __repr__(self) -> str:
        return f"HiddenTogetherProfile({self.alone!r})"

    def deltas(self, epsilons: Array) -> Array:
        alone = self.alone.deltas(epsilons)
        stretch = _STRETCH if epsilons.size <= _FEW else _LONG_STRETCH
        together = [self._between(epsilon, stretch) for epsilon in epsilons.tolist()]
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

    def renyi(self, order: float) -> float:
        """As if the place were revealed."""
        return self.alone.renyi(order)

    def gdp(self) -> float:
        """As if the place were revealed: as epsilon grows the most exposed place alone counts."""
        return self.alone.gdp()

    def _between(self, epsilon: float, stretch: int) -> float:
        """The chord between the places of the lattice around epsilon."""
        if not _LEAST_EPSILON < epsilon < _LARGEST_EPSILON:
            return 1.0
        low = math.floor(math.log(epsilon) / _SPACING)
        ends = [math.expm1(math.exp(place * _SPACING)) for place in (low, low + 1)]
        # Rounding may put it beyond an end, where the chord is no bound.
        part = min(max((math.expm1(epsilon) - ends[0]) / (ends[1] - ends[0]), 0.0), 1.0)
        chord = (1.0 - part) * self._at(low, stretch) + part * self._at(low + 1, stretch)
        return up(chord, THOUSANDS_OF_ROUNDINGS)

    def _at(self, place: int, stretch: int) -> float:
        key = place, stretch
        if key not in self._on_lattice:
            epsilon = math.exp(place * _SPACING)
            found = self._near(place // stretch, stretch)
            together = 1.0 if found is None else max(one.delta(epsilon) for one in found)
            self._on_lattice[key] = together
        return self._on_lattice[key]

    def _near(self, number: int, stretch: int) -> list[Together] | None:
        """A choice for each direction, None where one of them has none."""
        key = number, stretch
        if key not in self._choices:
            epsilon = math.exp((number + 0.5) * stretch * _SPACING)
            alone = float(self.alone.deltas(np.array([epsilon]))[0])
            found = []
            if _FAR_BELOW < alone < _FAR_ABOVE:
                found = [_found(drafts, epsilon, alone) for drafts in self._directions]
            known = [one for one in found if one is not None]
            self._choices[key] = known if known and len(known) == len(found) else None
        return self._choices[key]


def _found(drafts: Drafts, epsilon: float, delta: float) -> Together | None:
    """From one choice to better ones, one coordinate after the other."""
    best = Choice()
    start = _made(drafts, best, epsilon, -float(ndtri(delta)), _COARSE)
    if start is None:
        return None
    start.delta(epsilon)
    price = start.price
    tried: dict[Choice, float] = {}

    def value(choice: Choice) -> float:
        if choice not in tried:
            made = _made(drafts, choice, epsilon, price, _COARSE)
            tried[choice] = math.inf if made is None else made.delta(epsilon)
        return tried[choice]

    for name, values in _VALUES.items():
        best = min([best, *_with(best, name, values)], key=value)
    for name, values in _VALUES.items():
        at = values.index(getattr(best, name))
        best = min([best, *_with(best, name, values[max(at - 1, 0) : at + 2])], key=value)
    return _made(drafts, best, epsilon, price, _FINE) if value(best) < delta else None


def _with(choice: Choice, name: str, values: Sequence[float]) -> list[Choice]:
    return [replace(choice, **{name: one}) for one in values]


def _made(
    drafts: Drafts, choice: Choice, epsilon: float, price: float, detail: Detail
) -> Together | None:
    worlds = drafts(choice.late, choice.hidden, choice.noise)
    if worlds is None:
        return None
    return Together(worlds, worlds.staying(epsilon, price + choice.dearer), epsilon, detail)
