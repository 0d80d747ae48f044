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
        """The least chord of all grids, rounded up; beyond its end a grid has its last value."""
        return np.asarray(np.min([_chords(thresholds, *grid) for grid in self.grids], axis=0))


NOTHING = CallFunction(((1.0, np.zeros(2)),))
_FINER = np.array([1.0, 8.0])  # a second grid, for what is small


def _chords(thresholds: Array, cell: float, values: Array) -> Array:
    at = np.clip(thresholds / cell, 0.0, values.size - 1.0)
    first = np.minimum(at.astype(np.int64), values.size - 2)
    part = at - first
    chords = (1.0 - part) * values[first] + part * values[first + 1]
    return np.asarray(up(chords + np.maximum(-thresholds, 0.0), ulps(_STEPS)))


def call_function(weights: Array, spreads: Array, *, end: float, cells: int) -> CallFunction:
    """Bounds on E (X - K)_+ for terms with these means and standard deviations of the logarithm."""
    present = weights > 0.0
    weights, spreads = weights[present], np.maximum(spreads[present], _LEAST_SPREAD)
    if not weights.size:
        return NOTHING
    ends = end / _FINER
    values = _on_grids(weights, spreads, ends, cells)
    return CallFunction(tuple(zip((ends / cells).tolist(), values, strict=True)))


def _on_grids(weights: Array, spreads: Array, ends: Array, cells: int) -> Array:
    """One row for each of the grids, with so many cells up to these ends."""
    cell = ends[:, None] / cells
    size = fast_length(2 * cells + 2)
    own = _calls(weights, spreads, cell * np.arange(cells + 1, dtype=np.float64))
    slopes = np.diff(own) / cell
    terms = np.empty(own.shape)
    terms[..., 0], terms[..., -1] = 1.0 + slopes[..., 0], -slopes[..., -1]
    terms[..., 1:-1] = np.diff(slopes)
    np.maximum(terms, 0.0, out=terms)
    lacking, rounding = own[..., -1].sum(axis=0), np.zeros(ends.size)
    spectra, norms = np.fft.rfft(terms[1:], size), np.linalg.norm(terms, axis=-1)
    beyond = np.arange(1.0, size - cells)
    masses = terms[0]
    for spectrum, norm in zip(spectra, norms[1:], strict=True):
        rounding += 2.0 * np.linalg.norm(masses, axis=-1) + norm
        summed = np.fft.irfft(np.fft.rfft(masses, size) * spectrum, size)
        np.maximum(summed, 0.0, out=summed)
        lacking += cell[:, 0] * (summed[:, cells + 1 :] @ beyond)
        masses = summed[:, : cells + 1]
        masses[:, -1] += summed[:, cells + 1 :].sum(axis=-1)
    relative = ulps(_STEPS + 4 * roundings(size))
    # A transform is off by so much of a norm, and each place counts with its distance.
    transforms = ulps(4.0 * math.log2(size) + 4.0) * rounding * math.sqrt(cells + 1.0) * ends
    absolute = ulps(_STEPS) * weights.size * (float(weights.sum()) + ends)
    values = np.zeros(masses.shape)
    for row, found, width in zip(values, masses, cell[:, 0], strict=True):
        row[:-1] = width * suffix_sums(suffix_sums(found)[1:])
    return np.asarray(up(values + lacking[:, None], relative) + (transforms + absolute)[:, None])


def _calls(weights: Array, spreads: Array, grids: Array) -> Array:
    """E (w e^(s z - s^2/2) - K)_+ for K on grids, which begin with 0: one row for each term."""
    weight, spread, places = weights[:, None, None], spreads[:, None, None], grids[:, 1:]
    away = np.log(weight / places) / spread
    own = weight * ndtr(away + spread / 2) - places * ndtr(away - spread / 2)
    first = np.broadcast_to(weight, (*own.shape[:-1], 1))
    return np.concatenate([first, np.maximum(own, 0.0)], axis=-1)
