"""Delta curves that are known at some points: chords between these lie above the curve.

A curve falls and is convex in e^epsilon, so no chord lies below it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate._numerics.search import close_in, least_met
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order

_POINTS_NEAR, _POINTS_FAR = 400, 100
_SHORTEST = 1e-4
_FARTHEST = 1e4
_WIDEST = 700.0  # a difference of epsilons whose exponential is finite
# A curve may end in a floor, with no epsilon at all for the smaller of these.
_SMALL_DELTA, _SMALLEST_DELTA = 1e-9, 1e-14

_USUAL_MULTIPLIER, _LARGEST_KNOT = 4.0, 12.0
_LEAST_DELTA = 1e-300
_LARGEST_EPSILON = 600.0  # of a parametric curve


def chords(epsilons: Array, knots: Array, deltas: Array) -> Array:
    """Deltas at `epsilons` by chords between increasing knots, rounded up; 1 before the first."""
    # e^epsilon - 1 tells apart knots that are all but 0, too.
    inside = np.expm1(np.minimum(epsilons, knots[-1]))
    return np.asarray(
        up(np.interp(inside, np.expm1(knots), deltas, left=1.0), THOUSANDS_OF_ROUNDINGS)
    )


class ChordCurve:
    """The chords of a curve that is evaluated at some hundred points, once."""

    def __init__(self, epsilon: Callable[[float], float], deltas: Callable[[Array], Array]) -> None:
        end = min(epsilon(_SMALLEST_DELTA), _FARTHEST)
        end = end if end > 0.0 else 1.0
        near = min(epsilon(_SMALL_DELTA), end)
        near = near if near > 0.0 else end
        close = np.geomspace(_SHORTEST * near, near, _POINTS_NEAR)
        far = np.geomspace(near, end, _POINTS_FAR)
        self._at = np.unique(np.concatenate([[0.0], close, far]))
        self._deltas = np.minimum.accumulate(deltas(self._at))

    def deltas(self, epsilons: Array) -> Array:
        """delta at any epsilon; at negative ones by exchanging the two data sets."""
        away = np.minimum(np.abs(epsilons), self._at[-1])
        right = np.clip(np.searchsorted(self._at, away), 1, self._at.size - 1)
        left = right - 1
        width = self._at[right] - self._at[left]
        # Where e^epsilon overflows, the left end of the chord, which is never below it.
        known = width < _WIDEST
        inside = np.where(known, away - self._at[left], 0.0)
        part = np.expm1(inside) / np.expm1(np.where(known, width, 1.0))
        curve = (1.0 - part) * self._deltas[left] + part * self._deltas[right]
        curve = up(curve, THOUSANDS_OF_ROUNDINGS)
        # At the epsilon itself, even where the curve is not known as far as that.
        mirrored = -np.expm1(-np.abs(epsilons)) + np.exp(-np.abs(epsilons)) * curve
        return np.asarray(np.where(epsilons < 0.0, up(mirrored, FEW_ROUNDINGS), curve))


class ChordProfile(PrivacyProfile):
    """Another profile by the chords of its curve, for one that takes long at very many points."""

    def __init__(self, profile: PrivacyProfile) -> None:
        self._profile = profile
        self._curve = ChordCurve(profile.epsilon, profile.deltas)

    def deltas(self, epsilons: Array) -> Array:
        return self._curve.deltas(epsilons)

    def renyi(self, order: float) -> float:
        return self._profile.renyi(check_order(order))

    def gdp(self) -> float:
        return self._profile.gdp()


class ParametricProfile(PrivacyProfile):
    """A curve given by a multiplier: each multiplier has an epsilon and a delta that holds there.

    As the multiplier grows, epsilon does not fall and delta does not rise.  A probability `_lost`
    gets no guarantee.  `_knots` of the curve are computed; a multiplier is searched for up to
    `_largest_multiplier`, to `_tolerance`.
    """

    _knots: ClassVar[int]
    _largest_multiplier: ClassVar[float]
    _tolerance: ClassVar[float]
    _lost: float

    @abstractmethod
    def _at(self, multiplier: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon: exactly at a single one, else by chords between knots."""
        if epsilons.size == 1:
            return np.array([self._delta(float(epsilons[0]))])
        return np.asarray(np.clip(chords(epsilons, *self._curve), 0.0, 1.0))

    def _delta(self, epsilon: float) -> float:
        """delta at the largest multiplier whose epsilon does not exceed this one."""

        def excess(negative: float) -> float:
            return self._at(-negative)[0] - epsilon

        epsilon = min(epsilon, _LARGEST_EPSILON)
        least, delta = self._at(0.0)
        if not least <= _LARGEST_EPSILON:
            return 1.0
        if least < epsilon:
            # The search is for a least point, so it is over minus the multiplier.
            largest = -self._largest_multiplier
            if (beyond := excess(largest)) > 0.0:
                largest = close_in(excess, largest, beyond, 0.0, least - epsilon, self._tolerance)
            delta = self._at(-largest)[1] if excess(largest) <= 0.0 else 1.0
        else:
            # It falls by no more than e^epsilon grows.
            delta = up(delta + math.expm1(least) - math.expm1(epsilon), THOUSANDS_OF_ROUNDINGS)
        return delta if delta <= 1.0 else 1.0

    def epsilon(self, delta: float) -> float:
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        if not target > max(self._lost, _LEAST_DELTA):
            return math.inf

        def excess(multiplier: float) -> float:
            return math.log(max(self._at(max(multiplier, 0.0))[1], _LEAST_DELTA) / target)

        multiplier = least_met(
            excess, _USUAL_MULTIPLIER, tolerance=self._tolerance, farthest=self._largest_multiplier
        )
        return math.inf if multiplier is None else self._at(max(multiplier, 0.0))[0]

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Epsilons and deltas of the knots."""
        multipliers = np.linspace(0.0, _LARGEST_KNOT, self._knots)
        epsilons, deltas = np.transpose([self._at(each) for each in multipliers.tolist()])
        finite = np.isfinite(epsilons) & (epsilons < _LARGEST_EPSILON)
        return np.maximum.accumulate(epsilons[finite]), np.minimum.accumulate(deltas[finite])
