"""Searches for the parameters of a joint transport, or of a mixture, that prove the least delta.

Every choice of parameters is a valid proof.  A search tries a few values of one parameter after
the other on a coarse grid, and computes the best choice on a fine grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.special import ndtri

from lastiterate._numerics.rounding import ulps, up
from lastiterate.bounds.shuffling.joint_transport import (
    JointTransport,
    PositionLaws,
    TransportGrid,
)
from lastiterate.bounds.shuffling.mixture_divergence import (
    MixtureDivergence,
    MixtureGrid,
    MixturePair,
    PositionMixture,
)
from lastiterate.profile.privacy_profile import PrivacyProfile

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
    """

    late: float = 0.35
    hidden: float = 0.08
    noise: float = 0.95
    extra_multiplier: float = 0.0


_TRANSPORT_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.2, 0.35, 0.55),
    "hidden": (0.01, 0.03, 0.08, 0.2, 0.45),
    "extra_multiplier": (-0.4, -0.2, 0.0, 0.3),
    "noise": (0.3, 0.6, 0.95, 1.0),
}

PositionLawsFactory = Callable[[float, float, float], PositionLaws | None]
"""The position laws for shares that are late, hidden, and of noise; None if there are none."""


class TransportSearch:
    """The search for a joint transport, for one order of the data sets."""

    def __init__(self, laws: PositionLawsFactory) -> None:
        self._factory = laws
        # Unlike a cache of functools, a dict can be pickled.
        self._cache: dict[tuple[float, float, float], PositionLaws | None] = {}

    def __call__(self, epsilon: float, delta: float) -> JointTransport | None:
        """A joint transport below `delta` on the coarse grid, or None."""
        start = self._transport(
            TransportParameters(), epsilon, -float(ndtri(delta)), _COARSE_TRANSPORT
        )
        if start is None:
            return None
        start.delta(epsilon)
        multiplier = start.multiplier

        def cost(parameters: TransportParameters) -> float:
            transport = self._transport(parameters, epsilon, multiplier, _COARSE_TRANSPORT)
            return math.inf if transport is None else transport.delta(epsilon)

        best, least = best_by_coordinates(TransportParameters(), _TRANSPORT_VALUES, cost)
        if not least < delta:
            return None
        return self._transport(best, epsilon, multiplier, _FINE_TRANSPORT)

    def _transport(
        self,
        parameters: TransportParameters,
        epsilon: float,
        multiplier: float,
        grid: TransportGrid,
    ) -> JointTransport | None:
        laws = self._laws(parameters.late, parameters.hidden, parameters.noise)
        if laws is None:
            return None
        retained = laws.retained_shares(epsilon, multiplier + parameters.extra_multiplier)
        return JointTransport(laws, retained, epsilon, grid)

    def _laws(self, *shares: float) -> PositionLaws | None:
        late, hidden, noise = shares
        key = (late, hidden, noise)
        if key not in self._cache:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._factory(*key)
        return self._cache[key]


@dataclass(frozen=True)
class MixtureParameters:
    """The share of positions that windows hide, and the share of noise in the windows."""

    hidden: float = 0.25
    noise: float = 0.6


_MIXTURE_VALUES = {
    "hidden": (0.01, 0.03, 0.08, 0.15, 0.25, 0.4, 0.65),
    "noise": (0.15, 0.3, 0.45, 0.6, 0.75, 0.95),
}

MixtureFactory = Callable[[float, float], PositionMixture | None]
"""The mixture for shares that are hidden, and of noise; None if there is none."""


@dataclass(frozen=True)
class BoundedBatches:
    """The mixtures given that no batch is too large, which fails with probability `failure`.

    `without_windows` is the guarantee if no position is hidden by a window.
    """

    mixtures: MixtureFactory
    without_windows: PrivacyProfile
    failure: float


@dataclass(frozen=True)
class _MixtureOrFailure:
    divergence: MixtureDivergence
    failure: float

    def delta(self, epsilon: float) -> float:
        return min(up(self.divergence.delta(epsilon) + self.failure, ulps(4.0)), 1.0)


@dataclass(frozen=True)
class MixtureSearch:
    """The search for the mixture of one pair of laws, among limits on the size of batches."""

    pair: MixturePair
    limits: Sequence[BoundedBatches]

    def __call__(self, epsilon: float, delta: float) -> _MixtureOrFailure | None:
        """A mixture for the limit that is best without windows; None if `delta` is far away."""
        at = np.array([epsilon])
        limit = min(self.limits, key=lambda one: float(one.without_windows.deltas(at)[0]))

        def cost(parameters: MixtureParameters) -> float:
            mixture = self._mixture(limit, parameters, epsilon, _COARSE_MIXTURE)
            return math.inf if mixture is None else mixture.delta(epsilon)

        best, least = best_by_coordinates(MixtureParameters(), _MIXTURE_VALUES, cost)
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
        mixture = limit.mixtures(parameters.hidden, parameters.noise)
        if mixture is None:
            return None
        divergence = MixtureDivergence(mixture, self.pair, epsilon, grid)
        return _MixtureOrFailure(divergence, limit.failure)
