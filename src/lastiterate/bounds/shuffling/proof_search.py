"""A privacy profile by a search for the best proof at every epsilon.

Every proof that a search finds is valid.  To answer equal questions equally, proofs are searched
for on a lattice of epsilons, and all points of one stretch of the lattice share the proof that is
best in its middle.  Between the points delta is convex in e^epsilon, so chords lie above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.profile.profile import PrivacyProfile

_SPACING = 0.01  # of the lattice of log epsilon
_STRETCH, _LONG_STRETCH = 8, 32  # points that share a proof; the long ones for a whole curve
_LEAST_EPSILON, _LARGEST_EPSILON = 1e-4, 30.0  # between which proofs are searched for
_FEW_EPSILONS = 4  # more count as a whole curve
_LEAST_DELTA, _LARGEST_DELTA = 1e-12, 0.5  # between which a search is worth its time


class ShuffledProfile(PrivacyProfile):
    """The least of a quick profile and of the proofs found by searches.

    Each of `directions` searches for one order of the data sets; the worse of them counts.
    """

    def __init__(self, quick: PrivacyProfile, directions: Sequence[Search]) -> None:
        self.quick = quick
        self._directions = tuple(directions)
        self._proofs: dict[tuple[int, int], list[Proof] | None] = {}
        self._deltas: dict[tuple[int, int], float] = {}

    def __repr__(self) -> str:
        return f"ShuffledProfile({self.quick!r})"

    def deltas(self, epsilons: Array) -> Array:
        quick = self.quick.deltas(epsilons)
        stretch = _STRETCH if epsilons.size <= _FEW_EPSILONS else _LONG_STRETCH
        inside = (epsilons > _LEAST_EPSILON) & (epsilons < _LARGEST_EPSILON)
        searched = np.ones(epsilons.shape)
        searched[inside] = self._chords(epsilons[inside], stretch)
        return np.asarray(np.minimum(quick, searched))

    def epsilon(self, delta: float) -> float:
        quick = self.quick.epsilon(delta)
        if not (_LEAST_EPSILON < quick < _LARGEST_EPSILON and delta > _LEAST_DELTA):
            return quick
        high = math.ceil(math.log(quick) / _SPACING)  # where the quick profile is below delta
        low = (high // _STRETCH) * _STRETCH - 1
        while self._delta_at(low, _STRETCH) <= delta:
            high, low = low, low - _STRETCH // 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._delta_at(middle, _STRETCH) <= delta:
                high = middle
            else:
                low = middle
        above, below = self._delta_at(low, _STRETCH), self._delta_at(high, _STRETCH)
        if not below <= delta < above:  # the first `high` need not have a proof
            return quick
        ends = [math.expm1(math.exp(point * _SPACING)) for point in (low, high)]
        searched = math.log1p(ends[0] + (ends[1] - ends[0]) * (above - delta) / (above - below))
        return min(up(searched, THOUSANDS_OF_ROUNDINGS), quick)

    def _exceeds(self, epsilon: float, delta: float) -> bool:
        """Whether delta at the next point of the lattice is larger, by a search for it alone."""
        if not float(self.quick.deltas(np.array([epsilon]))[0]) > delta:
            return False
        if not _LEAST_EPSILON < epsilon < _LARGEST_EPSILON:
            return True
        return self._delta_at(math.ceil(math.log(epsilon) / _SPACING), _STRETCH) > delta

    def cheap(self) -> PrivacyProfile:
        """The quick profile: searches for a whole curve would take seconds."""
        return self.quick

    def renyi(self, order: float) -> float:
        """The Renyi divergence of the quick profile."""
        return self.quick.renyi(order)

    def gdp(self) -> float:
        """mu of the quick profile: as epsilon grows only the most exposed position counts."""
        return self.quick.gdp()

    def _chords(self, epsilons: Array, stretch: int) -> Array:
        """The chords between the points of the lattice around each epsilon."""
        below = np.floor(np.log(epsilons) / _SPACING)
        points, index = np.unique(np.concatenate([below, below + 1.0]), return_inverse=True)
        deltas = np.array([self._delta_at(int(point), stretch) for point in points])
        low, high = index[: below.size], index[below.size :]
        ends = np.expm1(np.exp(points * _SPACING))
        # Rounding may put an epsilon beyond an end, where the chord is no bound.
        part = np.clip((np.expm1(epsilons) - ends[low]) / (ends[high] - ends[low]), 0.0, 1.0)
        chords = (1.0 - part) * deltas[low] + part * deltas[high]
        return np.asarray(up(chords, THOUSANDS_OF_ROUNDINGS))

    def _delta_at(self, point: int, stretch: int) -> float:
        """delta at one point of the lattice, the worse of all directions; 1 without a proof."""
        key = point, stretch
        if key not in self._deltas:
            epsilon = math.exp(point * _SPACING)
            proofs = self._proofs_of(point // stretch, stretch)
            deltas = [1.0] if proofs is None else [one.delta(epsilon) for one in proofs]
            # nan is not below 1: where arithmetic fails nothing is certified.
            valid = all(delta <= 1.0 for delta in deltas)
            self._deltas[key] = max(deltas) if valid else 1.0
        return self._deltas[key]

    def _proofs_of(self, number: int, stretch: int) -> list[Proof] | None:
        """A proof for each direction, None if one of them has none."""
        key = number, stretch
        if key not in self._proofs:
            epsilon = math.exp((number + 0.5) * stretch * _SPACING)
            quick = float(self.quick.deltas(np.array([epsilon]))[0])
            results: list[Proof | None] = []
            if _LEAST_DELTA < quick < _LARGEST_DELTA:
                results = [search(epsilon, quick) for search in self._directions]
            proofs = [proof for proof in results if proof is not None]
            self._proofs[key] = proofs if proofs and len(proofs) == len(results) else None
        return self._proofs[key]


class Proof(Protocol):
    """One proof, valid for all epsilons."""

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta."""


class Search(Protocol):
    """A search for proofs."""

    def __call__(self, epsilon: float, delta: float) -> Proof | None:
        """A proof that is good at this epsilon; None if there is no use below this delta."""


_Parameters = TypeVar("_Parameters")


def best_by_coordinates(
    start: _Parameters,
    values: Mapping[str, Sequence[float]],
    cost: Callable[[_Parameters], float],
) -> tuple[_Parameters, float]:
    """The best parameters met by a search along one coordinate after the other, and their cost.

    First all `values` of each field of a dataclass are tried, then those next to the best one.
    """
    costs: dict[_Parameters, float] = {}

    def cached(parameters: _Parameters) -> float:
        if parameters not in costs:
            costs[parameters] = cost(parameters)
        return costs[parameters]

    best = start
    for name, candidates in values.items():
        best = min([best, *_with_values(best, name, candidates)], key=cached)
    for name, candidates in values.items():
        at = candidates.index(getattr(best, name))
        neighbours = candidates[max(at - 1, 0) : at + 2]
        best = min([best, *_with_values(best, name, neighbours)], key=cached)
    return best, cached(best)


def _with_values(parameters: _Parameters, name: str, values: Sequence[float]) -> list[_Parameters]:
    return [replace(parameters, **{name: one}) for one in values]  # type: ignore[type-var]  # a dataclass
