"""A delta curve by chords between some hundred of its points."""

from collections.abc import Callable

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import FEW_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, up

_POINTS_NEAR, _POINTS_FAR = 400, 100
_SHORTEST = 1e-4
_FARTHEST = 1e4
_WIDEST = 700.0  # of which e^epsilon is finite
# A curve may end in a floor, with no epsilon at all for the smaller of these.
_SMALL_DELTA, _LEAST_DELTA = 1e-9, 1e-14


class ChordCurve:
    """A delta curve by chords: it is convex in e^epsilon, and falls, so that none lies below it."""

    def __init__(self, epsilon: Callable[[float], float], deltas: Callable[[Array], Array]) -> None:
        end = min(epsilon(_LEAST_DELTA), _FARTHEST)
        end = end if end > 0.0 else 1.0
        near = min(epsilon(_SMALL_DELTA), end)
        near = near if near > 0.0 else end
        close = np.geomspace(_SHORTEST * near, near, _POINTS_NEAR)
        far = np.geomspace(near, end, _POINTS_FAR)
        self._at = np.unique(np.concatenate([[0.0], close, far]))
        self._deltas = np.minimum.accumulate(deltas(self._at))

    def on_both_sides(self, exponents: Array) -> Array:
        """At any epsilon; below 0 by exchanging the data sets."""
        away = np.minimum(np.abs(exponents), self._at[-1])
        right = np.clip(np.searchsorted(self._at, away), 1, self._at.size - 1)
        left = right - 1
        width = self._at[right] - self._at[left]
        # Where e^epsilon overflows, the left end of the chord, which is never below it.
        known = width < _WIDEST
        inside = np.where(known, away - self._at[left], 0.0)
        part = np.expm1(inside) / np.expm1(np.where(known, width, 1.0))
        curve = (1.0 - part) * self._deltas[left] + part * self._deltas[right]
        curve = up(curve, THOUSANDS_OF_ROUNDINGS)
        # As far as it was asked for, and not only as far as the curve is known.
        mirrored = -np.expm1(-np.abs(exponents)) + np.exp(-np.abs(exponents)) * curve
        return np.asarray(np.where(exponents < 0.0, up(mirrored, FEW_ROUNDINGS), curve))
