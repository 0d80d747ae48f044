"""Searches for the parameters of a joint transport, or of a mixture, that prove the least delta.

Every choice of parameters is a valid proof.  A search tries a few values of one parameter after
the other on a coarse grid, and computes the best choice on a fine grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from scipy.special import ndtri

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, ulps, up
from lastiterate.bounds.balls_and_bins.divergence import (
    MixtureDivergence,
    MixtureGrid,
    MixturePair,
    PositionMixture,
)
from lastiterate.bounds.shuffling.joint_transport import JointTransport, PositionLaws, TransportGrid
from lastiterate.profile.profile import PrivacyProfile

_COARSE_TRANSPORT = TransportGrid(receiving=8, every_nth_knot=2, cells=500, step=0.25)

_FINE_TRANSPORT = TransportGrid(receiving=40, every_nth_knot=1, cells=4000, step=0.1)

_COARSE_MIXTURE = MixtureGrid(cells=300, step=0.05, spacing=0.6)

_FINE_MIXTURE = MixtureGrid(cells=1500, step=0.002, spacing=0.3)

_HOPELESS = 2.0  # a coarse mixture so many times above the known delta is given up

_MOST_CACHED = 64

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
        best = min([best, *_with(best, name, candidates)], key=cached)
    for name, candidates in values.items():
        at = candidates.index(getattr(best, name))
        neighbours = candidates[max(at - 1, 0) : at + 2]
        best = min([best, *_with(best, name, neighbours)], key=cached)
    return best, cached(best)


def _with(parameters: _Parameters, name: str, values: Sequence[float]) -> list[_Parameters]:
    return [replace(parameters, **{name: one}) for one in values]  # type: ignore[type-var]  # a dataclass


@dataclass(frozen=True)
class TransportParameters:
    """Shares of positions that are late, of late ones that are hidden, and of windows' noise.

    Retained shares of hidden positions are those of a multiplier larger by `extra_multiplier`.
    `first_window` is the length of the first window, in units of 1/(step size x smoothness).
    """

    late: float = 0.35
    hidden: float = 0.08
    noise: float = 0.95
    extra_multiplier: float = 0.0
    first_window: float = 0.0


_TRANSPORT_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.2, 0.35, 0.55),
    "hidden": (0.01, 0.03, 0.08, 0.2, 0.45),
    "extra_multiplier": (-0.4, -0.2, 0.0, 0.3),
    "noise": (0.3, 0.6, 0.95, 1.0),
}

_EARLY_START = TransportParameters(hidden=0.2, first_window=1.5)

_EARLY_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.18, 0.25, 0.35, 0.5),
    "hidden": (0.02, 0.05, 0.1, 0.2, 0.35, 0.6),
    "first_window": (0.0, 0.5, 1.0, 1.5, 2.2),
    "extra_multiplier": (-0.4, -0.2, 0.0, 0.2),
    "noise": (0.3, 0.6, 0.85, 0.95),
}

PositionLawsFactory = Callable[[float, float, float, float], PositionLaws | None]
"""The position laws for shares that are late, hidden, and of noise, and for a first window.

None if there are none.
"""


@dataclass(frozen=True)
class _AverageProof:
    """The average of joint transports with these probabilities, and a probability of failure."""

    shares: Sequence[float]
    transports: Sequence[JointTransport]
    failure: float

    def delta(self, epsilon: float) -> float:
        deltas = [one.delta(epsilon) for one in self.transports]
        total = math.fsum(p * d for p, d in zip(self.shares, deltas, strict=True)) + self.failure
        return min(up(total, ulps(len(deltas) + 4.0)), 1.0)


class TransportSearch:
    """The search for a joint transport, for one order of the data sets.

    `parts` are the probabilities of several position laws, one of which holds; the parameters are
    searched for the likeliest one.  `failure` is added to delta.
    """

    def __init__(
        self,
        parts: Sequence[tuple[float, PositionLawsFactory]],
        *,
        failure: float = 0.0,
        early: bool = False,
    ) -> None:
        self._parts, self._failure = parts, failure
        self._likeliest = max(range(len(parts)), key=lambda number: parts[number][0])
        self._start = _EARLY_START if early else TransportParameters()
        self._values = _EARLY_VALUES if early else _TRANSPORT_VALUES
        # Unlike a cache of functools, a dict can be pickled.
        self._cache: dict[tuple[float, ...], PositionLaws | None] = {}

    def __call__(self, epsilon: float, delta: float) -> Proof | None:
        """A joint transport below `delta` on the coarse grid, or None."""
        likeliest = self._likeliest
        start = self._transport(
            likeliest, self._start, epsilon, -float(ndtri(delta)), _COARSE_TRANSPORT
        )
        if start is None:
            return None
        start.delta(epsilon)
        multiplier = start.multiplier

        def cost(parameters: TransportParameters) -> float:
            transport = self._transport(
                likeliest, parameters, epsilon, multiplier, _COARSE_TRANSPORT
            )
            return math.inf if transport is None else transport.delta(epsilon)

        best, least = best_by_coordinates(self._start, self._values, cost)
        if len(self._parts) == 1:
            fine = self._transport(0, best, epsilon, multiplier, _FINE_TRANSPORT)
            if not least < delta or fine is None:
                return None
            return fine if not self._failure else _AverageProof([1.0], [fine], self._failure)
        every = [
            self._transport(number, best, epsilon, multiplier, _FINE_TRANSPORT)
            for number in range(len(self._parts))
        ]
        transports = [one for one in every if one is not None]
        if len(transports) < len(every):
            return None
        return _AverageProof([share for share, _ in self._parts], transports, self._failure)

    def _transport(
        self,
        number: int,
        parameters: TransportParameters,
        epsilon: float,
        multiplier: float,
        grid: TransportGrid,
    ) -> JointTransport | None:
        laws = self._laws(
            number, parameters.late, parameters.hidden, parameters.noise, parameters.first_window
        )
        if laws is None:
            return None
        retained = laws.retained_shares(epsilon, multiplier + parameters.extra_multiplier)
        return JointTransport(laws, retained, epsilon, grid)

    def _laws(self, number: int, *shares: float) -> PositionLaws | None:
        key = (number, *shares)
        if key not in self._cache:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.pop(next(iter(self._cache)))
            late, hidden, noise, first_window = shares
            self._cache[key] = self._parts[number][1](late, hidden, noise, first_window)
        return self._cache[key]


@dataclass(frozen=True)
class MixtureParameters:
    """The share of positions that windows hide, and the share of noise in the windows.

    `first_window` is the length of the first window, in units of 1/(step size x smoothness).
    """

    hidden: float = 0.25
    noise: float = 0.6
    first_window: float = 0.0


_MIXTURE_VALUES = {
    "hidden": (0.01, 0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.15, 0.3, 0.45, 0.6, 0.75, 0.95),
}

_EARLY_MIXTURE_START = MixtureParameters(noise=0.75, first_window=1.0)

_EARLY_MIXTURE_VALUES = {
    "hidden": (0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.3, 0.6, 0.75, 0.95),
    "first_window": (0.0, 0.5, 1.0, 1.5, 2.2),
}

MixtureFactory = Callable[[MixtureParameters], PositionMixture | None]
"""The mixture for some parameters; None if there is none."""


@dataclass(frozen=True)
class BoundedBatches:
    """The mixtures given that no batch is too large, which fails with probability `failure`.

    `without_windows` is the guarantee if no position is hidden by a window.  With probability
    `shift_failure`, in each data set, shifts do not hide the example where it is.
    """

    mixtures: MixtureFactory
    without_windows: PrivacyProfile
    failure: float
    shift_failure: float = 0.0


@dataclass(frozen=True)
class _MixtureOrFailure:
    divergence: MixtureDivergence
    failure: float
    shift_failure: float

    def delta(self, epsilon: float) -> float:
        failures = self.failure + failures_of_shifts(self.shift_failure, epsilon)
        return min(up(self.divergence.delta(epsilon) + failures, ulps(8.0)), 1.0)


def failures_of_shifts(failure: float, epsilon: float) -> float:
    """The charge to delta if shifts fail with this probability in each data set.

    The second law counts e^epsilon times, and so do its failures: each is another one for every
    position, so that they do not cancel against a law without the example.
    """
    return up(failure * (1.0 + math.exp(min(epsilon, 700.0))), ulps(8.0))


@dataclass(frozen=True)
class MixtureSearch:
    """The search for the mixture of one pair of laws, among limits on the size of batches."""

    pair: MixturePair
    limits: Sequence[BoundedBatches]
    early: bool = False

    def __call__(self, epsilon: float, delta: float) -> _MixtureOrFailure | None:
        """A mixture for the limit that is best without windows; None if `delta` is far away."""
        at = np.array([epsilon])
        limit = min(self.limits, key=lambda one: float(one.without_windows.deltas(at)[0]))

        def cost(parameters: MixtureParameters) -> float:
            mixture = self._mixture(limit, parameters, epsilon, _COARSE_MIXTURE)
            return math.inf if mixture is None else mixture.delta(epsilon)

        start = _EARLY_MIXTURE_START if self.early else MixtureParameters()
        values = _EARLY_MIXTURE_VALUES if self.early else _MIXTURE_VALUES
        best, least = best_by_coordinates(start, values, cost)
        if not least < _HOPELESS * delta:
            return None
        return self._mixture(limit, best, epsilon, _FINE_MIXTURE)

    def _mixture(
        self,
        limit: BoundedBatches,
        parameters: MixtureParameters,
        epsilon: float,
        grid: MixtureGrid,
    ) -> _MixtureOrFailure | None:
        mixture = limit.mixtures(parameters)
        if mixture is None:
            return None
        divergence = MixtureDivergence(mixture, self.pair, epsilon, grid)
        return _MixtureOrFailure(divergence, limit.failure, limit.shift_failure)


# A privacy profile by a search for the best proof at every epsilon.
#
# Every proof that a search finds is valid.  To answer equal questions equally, proofs are searched
# for on a lattice of epsilons, and all points of one stretch of the lattice share the proof that is
# best in its middle.  Between the points delta is convex in e^epsilon, so chords lie above it.

_SPACING = 0.01  # of the lattice of log epsilon

_STRETCH, _LONG_STRETCH = 8, 32  # points that share a proof; the long ones for a whole curve

_LEAST_EPSILON, _LARGEST_EPSILON = 1e-4, 30.0  # between which proofs are searched for

_FEW_EPSILONS = 4  # more count as a whole curve

_LEAST_DELTA, _LARGEST_DELTA = 1e-12, 0.5  # between which a search is worth its time


class Proof(Protocol):
    """One proof, valid for all epsilons."""

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta."""


class Search(Protocol):
    """A search for proofs."""

    def __call__(self, epsilon: float, delta: float) -> Proof | None:
        """A proof that is good at this epsilon; None if there is no use below this delta."""


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
