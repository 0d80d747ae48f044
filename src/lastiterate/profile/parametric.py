"""Guarantees that are known along a price: for each an epsilon, and a delta that holds there."""

import math
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, up
from lastiterate._numerics.search import close_in, least_met
from lastiterate.profile.privacy_profile import PrivacyProfile

_USUAL_PRICE, _LARGEST_KNOT = 4.0, 12.0
_LEAST_DELTA = 1e-300
_LARGEST_EPSILON = 600.0  # of a curve


class ParametricProfile(PrivacyProfile):
    """As the price grows, epsilon does not fall and delta does not rise.

    A probability `_lost` gets no guarantee.  `_knots` of the curve are computed; a price is looked
    for up to the `_largest_price`, to `_tolerance`.
    """

    _knots: ClassVar[int]
    _largest_price: ClassVar[float]
    _tolerance: ClassVar[float]
    _lost: float

    @abstractmethod
    def _at(self, price: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""

    def deltas(self, epsilons: Array) -> Array:
        """Chords between knots: delta is convex in e^epsilon, so they lie above it."""
        if epsilons.size == 1:
            return np.array([self._delta(float(epsilons[0]))])
        at, deltas = self._curve
        inside = np.minimum(epsilons, at[-1])
        chords = np.interp(np.expm1(inside), np.expm1(at), deltas, left=1.0)
        return np.asarray(np.clip(up(chords, THOUSANDS_OF_ROUNDINGS), 0.0, 1.0))

    def _delta(self, epsilon: float) -> float:
        """At the largest price whose epsilon does not exceed this one: no knot is needed."""

        def excess(thrift: float) -> float:
            return self._at(-thrift)[0] - epsilon

        epsilon = min(epsilon, _LARGEST_EPSILON)
        least, delta = self._at(0.0)
        if not least <= _LARGEST_EPSILON:
            return 1.0
        if least < epsilon:
            dearest = -self._largest_price
            if (beyond := excess(dearest)) > 0.0:
                dearest = close_in(excess, dearest, beyond, 0.0, least - epsilon, self._tolerance)
            delta = self._at(-dearest)[1] if excess(dearest) <= 0.0 else 1.0
        else:
            # It falls by no more than e^epsilon grows.
            delta = up(delta + math.expm1(least) - math.expm1(epsilon), THOUSANDS_OF_ROUNDINGS)
        return delta if delta <= 1.0 else 1.0

    def epsilon(self, delta: float) -> float:
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        if not target > max(self._lost, _LEAST_DELTA):
            return math.inf

        def excess(price: float) -> float:
            return math.log(max(self._at(max(price, 0.0))[1], _LEAST_DELTA) / target)

        price = least_met(
            excess, _USUAL_PRICE, tolerance=self._tolerance, farthest=self._largest_price
        )
        return math.inf if price is None else self._at(max(price, 0.0))[0]

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        prices = np.linspace(0.0, _LARGEST_KNOT, self._knots)
        epsilons, deltas = np.transpose([self._at(price) for price in prices.tolist()])
        finite = np.isfinite(epsilons) & (epsilons < _LARGEST_EPSILON)
        return np.maximum.accumulate(epsilons[finite]), np.minimum.accumulate(deltas[finite])
