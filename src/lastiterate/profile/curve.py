r"""Delta curves that are known at some points: chords between these lie above the curve.

A curve falls and is convex in e^epsilon, so no chord lies below it.

**The losses that a table admits.** Beyond its last point a curve lies below that.  The curve of
chords is that of a pair whose losses are at the points: at :math:`\varepsilon_j` the mass is
:math:`e^{\varepsilon_j}` times the change of slope there.  Where a curve that was rounded up bends
the other way, the change counts as none, which is no less.  A guarantee is of both directions, so
that the mass at :math:`-\varepsilon_j` is :math:`e^{-\varepsilon_j}` of the mass at
:math:`\varepsilon_j`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    ulps,
    up,
)
from lastiterate._numerics.search import close_in, least_met
from lastiterate.errors import InvalidParameter
from lastiterate.profile.losses import LossCells
from lastiterate.profile.pld import Losses, convex_envelope
from lastiterate.profile.profile import PrivacyProfile, check_order

_POINTS_NEAR, _POINTS_FAR = 400, 100
_LEAST_CHORD_EPSILON = 1e-4  # in units of that at the small delta
_LARGEST_CHORD_EPSILON = 1e4
_WIDEST_CHORD = 700.0  # a difference of epsilons whose exponential is finite
# A curve may end in a floor, with no epsilon at all for the smaller of these.
_SMALL_DELTA, _SMALLEST_DELTA = 1e-9, 1e-14
_USUAL_MULTIPLIER, _LARGEST_KNOT = 4.0, 12.0
_LEAST_DELTA = 1e-300
_LARGEST_PARAMETRIC_EPSILON = 600.0
_TABLE_POINTS = 200
_TAIL_DELTA = 1e-14
_USUAL_DELTA = 1e-5


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
        end = min(epsilon(_SMALLEST_DELTA), _LARGEST_CHORD_EPSILON)
        end = end if end > 0.0 else 1.0
        near = min(epsilon(_SMALL_DELTA), end)
        near = near if near > 0.0 else end
        close = np.geomspace(_LEAST_CHORD_EPSILON * near, near, _POINTS_NEAR)
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
        known = width < _WIDEST_CHORD
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
    def _point_at(self, multiplier: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon: exactly at a single one, else by chords between knots."""
        if epsilons.size == 1:
            return np.array([self._delta(float(epsilons[0]))])
        return np.asarray(np.clip(chords(epsilons, *self._curve), 0.0, 1.0))

    def _delta(self, epsilon: float) -> float:
        """delta at the largest multiplier whose epsilon does not exceed this one."""

        def excess(negative: float) -> float:
            return self._point_at(-negative)[0] - epsilon

        epsilon = min(epsilon, _LARGEST_PARAMETRIC_EPSILON)
        least, delta = self._point_at(0.0)
        if not least <= _LARGEST_PARAMETRIC_EPSILON:
            return 1.0
        if least < epsilon:
            # The search is for a least point, so it is over minus the multiplier.
            largest = -self._largest_multiplier
            if (beyond := excess(largest)) > 0.0:
                largest = close_in(excess, largest, beyond, 0.0, least - epsilon, self._tolerance)
            delta = self._point_at(-largest)[1] if excess(largest) <= 0.0 else 1.0
        else:
            # It falls by no more than e^epsilon grows.
            delta = up(delta + math.expm1(least) - math.expm1(epsilon), THOUSANDS_OF_ROUNDINGS)
        return delta if delta <= 1.0 else 1.0

    def epsilon(self, delta: float) -> float:
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        if not target > max(self._lost, _LEAST_DELTA):
            return math.inf

        def excess(multiplier: float) -> float:
            return math.log(max(self._point_at(max(multiplier, 0.0))[1], _LEAST_DELTA) / target)

        multiplier = least_met(
            excess, _USUAL_MULTIPLIER, tolerance=self._tolerance, farthest=self._largest_multiplier
        )
        return math.inf if multiplier is None else self._point_at(max(multiplier, 0.0))[0]

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Epsilons and deltas of the knots."""
        multipliers = np.linspace(0.0, _LARGEST_KNOT, self._knots)
        epsilons, deltas = np.transpose([self._point_at(each) for each in multipliers.tolist()])
        finite = np.isfinite(epsilons) & (epsilons < _LARGEST_PARAMETRIC_EPSILON)
        return np.maximum.accumulate(epsilons[finite]), np.minimum.accumulate(deltas[finite])


@dataclass(frozen=True, eq=False)
class Curve:
    """Deltas at 0, `cell`, 2 `cell`, ..; beyond the last they are no larger than it."""

    cell: float
    deltas: Array

    def __post_init__(self) -> None:
        _check.number("cell", self.cell, above=0.0)
        deltas = _check.numbers("deltas", self.deltas)
        if not (deltas.size >= 2 and deltas.max() <= 1.0 and np.all(np.diff(deltas) <= 0.0)):
            must_be = "at least two, at most 1 and falling"
            raise InvalidParameter("deltas", deltas, must_be=must_be)
        object.__setattr__(self, "deltas", deltas)

    def losses(self) -> LossCells:
        """The privacy losses that the points of the curve allow, the same in both directions."""
        at = self.cell * np.arange(self.deltas.size)
        shrunk, less = float(np.exp(-self.cell)), float(-np.expm1(-self.cell))
        falls = np.append(self.deltas[:-1] - self.deltas[1:], 0.0)
        right = np.maximum((falls[:-1] - shrunk * falls[1:]) / less, 0.0)
        off = ulps(16) / less * self.deltas[:-1]
        first, second = self.deltas[0], self.deltas[1]
        middle = 1.0 - (first * (1.0 + shrunk) - 2.0 * shrunk * second) / less
        middle_off = ulps(16) * (1.0 + first / less)
        factors = np.exp(-at[:0:-1])
        losses_at = np.concatenate([-at[:0:-1], at])
        masses = np.concatenate([factors * right[::-1], [max(middle, 0.0)], right])
        offs = np.concatenate([factors * off[::-1], [middle_off], off])
        others = masses * np.exp(-np.maximum(losses_at, -700.0))
        infinite = float(self.deltas[-1])
        return LossCells(losses_at, losses_at, masses, others, offs, ulps(4) * others, infinite)


def tabulated(profile: PrivacyProfile) -> Curve:
    """The curve of a guarantee, as far as anything of it is left."""
    left = float(profile.deltas(np.array([1e9]))[0])
    reach = profile.epsilon(min(1.01 * left + _TAIL_DELTA, 1.0 - _TAIL_DELTA))
    cell = min(max(reach, ulps(1)), 1e9) / _TABLE_POINTS
    usual = profile.epsilon(_USUAL_DELTA)
    if cell < usual < reach:
        # One point is where most ask, so that a budget of that epsilon holds this guarantee.
        cell = at_least(usual / math.floor(usual / cell), ulps=2)
    epsilons = cell * np.arange(_TABLE_POINTS + 1, dtype=np.float64)
    deltas = np.minimum(profile.deltas(epsilons), 1.0)
    if cell < usual < reach:  # asked alone it is answered more exactly than among many
        step = round(usual / cell)
        exactly = max(profile.delta(float(epsilons[step])), _USUAL_DELTA)
        deltas[step] = min(deltas[step], exactly)
    falling = np.minimum.accumulate(deltas)
    return Curve(cell, convex_envelope(epsilons, falling))


def atoms(losses: Losses) -> LossCells:
    """The losses of a distribution that dp-accounting made."""
    kept = losses.masses > 0.0
    losses_at = np.asarray(
        losses.cell * (losses.first + np.arange(losses.masses.size)[kept]), dtype=np.float64
    )
    masses = losses.masses[kept]
    others = masses * np.exp(-np.maximum(losses_at, -700.0))
    zero = np.zeros(masses.size)
    return LossCells(losses_at, losses_at, masses, others, zero, ulps(8) * others, losses.infinite)
