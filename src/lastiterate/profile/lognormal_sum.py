r"""Sums of independent log-normal variables, from above: :math:`X = \sum_j w_j
e^{\rho_j z_j - \rho_j^2/2}` with independent standard normal :math:`z_j`.

Only :math:`C(K) = E (X - K)_+` is asked for.  Each term is put on a grid so that its own C stays
what it is at the places of the grid and becomes linear in between.  C is convex, so it does not
decrease anywhere: the term is replaced by one that is larger in convex order, with the same mean,
and so is the sum.  What lies beyond the end of the grid is left there, and what that lacks is added
to all C as its mean; this is exact for K on the grid, since C has slope -1 at most.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.fourier import fast_length
from lastiterate._numerics.rounding import ulps, up
from lastiterate._numerics.sums import roundings, suffix_sums

_LEAST_SPREAD = 1e-4  # of the logarithm; less is taken for that
_STEPS = 64.0  # roundings of what is computed for one place of the grid


@dataclass(frozen=True, eq=False)
class CallFunction:
    """Upper bounds of E (X - K)_+ for K on grids 0, cell, 2 cell, .."""

    grids: tuple[tuple[float, Array], ...]

    def __call__(self, thresholds: Array) -> Array:
        """By the best grid, rounded up: chords between its places, beyond its end as there."""
        return np.asarray(np.min([_chords(thresholds, *grid) for grid in self.grids], axis=0))


NOTHING = CallFunction(((1.0, np.zeros(2)),))
_FINER = (1.0, 8.0)  # a second grid, for what is small


def _chords(thresholds: Array, cell: float, values: Array) -> Array:
    at = np.clip(thresholds / cell, 0.0, values.size - 1.0)
    first = np.minimum(at.astype(np.int64), values.size - 2)
    part = at - first
    chords = (1.0 - part) * values[first] + part * values[first + 1]
    return np.asarray(up(chords + np.maximum(-thresholds, 0.0), ulps(_STEPS)))


def call_function(weights: Array, spreads: Array, *, end: float, cells: int) -> CallFunction:
    """Of the sum of terms with these means and standard deviations of the logarithm."""
    present = weights > 0.0
    weights, spreads = weights[present], np.maximum(spreads[present], _LEAST_SPREAD)
    if not weights.size:
        return NOTHING
    return CallFunction(tuple(_on_grid(weights, spreads, end / one, cells) for one in _FINER))


def _on_grid(weights: Array, spreads: Array, end: float, cells: int) -> tuple[float, Array]:
    cell = end / cells
    grid = cell * np.arange(cells + 1, dtype=np.float64)
    size = fast_length(2 * cells + 2)
    masses, lacking, rounding = np.zeros(0), 0.0, 0.0
    for weight, spread in zip(weights.tolist(), spreads.tolist(), strict=True):
        own = _calls(weight, spread, grid)
        slopes = np.diff(own) / cell
        term = np.maximum(np.concatenate([[1.0 + slopes[0]], np.diff(slopes), [-slopes[-1]]]), 0.0)
        lacking += float(own[-1])
        if not masses.size:
            masses = term
            continue
        rounding += float(2.0 * np.linalg.norm(masses) + np.linalg.norm(term))
        spectrum = np.fft.rfft(masses, size) * np.fft.rfft(term, size)
        summed = np.maximum(np.fft.irfft(spectrum, size), 0.0)
        beyond = summed[cells + 1 :]
        lacking += float(beyond @ (cell * np.arange(1.0, beyond.size + 1.0)))
        masses = summed[: cells + 1]
        masses[-1] += beyond.sum()
    above = suffix_sums(masses)[1:]
    values = np.append(cell * suffix_sums(above), 0.0) + lacking
    relative = ulps(_STEPS + 4 * roundings(size))
    # A transform is off by so much of a norm, and each place counts with its distance.
    transforms = ulps(4.0 * math.log2(size) + 4.0) * rounding * math.sqrt(cells + 1.0) * end
    absolute = ulps(_STEPS) * weights.size * (float(weights.sum()) + end)
    return cell, up(values, relative) + transforms + absolute


def _calls(weight: float, spread: float, grid: Array) -> Array:
    """E (w e^(s z - s^2/2) - K)_+ for K on the grid, which begins with 0."""
    away = np.log(weight / grid[1:]) / spread
    own = weight * ndtr(away + spread / 2) - grid[1:] * ndtr(away - spread / 2)
    return np.concatenate([[weight], np.maximum(own, 0.0)])
