r"""Sums of independent differences of log-normal variables, from above: :math:`X - \kappa Y`, with

.. math:: X = u \sum_j p_j e^{\rho_j z_j - \rho_j^2/2} , \qquad
    Y = \sum_j p_j e^{-\rho_j z_j - \rho_j^2/2}

for independent standard normal :math:`z_j`, and u 1 or 0.  Only :math:`C(\kappa, K) = E (X - \kappa
Y - K)_+` is asked for.  For some :math:`\kappa` every term is put on a grid, as in `lognormal_sum`,
so that its own C stays what it is at the places of the grid; what lies below the grid is raised to
its beginning.  C is convex in both arguments together and does not increase in K.  So between two
:math:`\kappa` it lies below the chord of any two K whose chord leads to the K asked for: here those
along which :math:`K + \kappa\,E Y` is the same, since C then hardly bends.
"""

import math

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.fourier import fast_length
from lastiterate._numerics.rounding import TINY, ulps, up
from lastiterate._numerics.sums import roundings
from lastiterate.errors import InvalidParameter

_LEAST_SPREAD = 1e-4  # of the logarithm; less is taken for that
_STEPS = 64.0  # roundings of what is computed for one place of a grid
_LOWEST = 4.0  # standard deviations: what is below is raised to it
_LEAST_REACH = 4.0  # of a grid beyond its beginning, in units of what all p are together


class DifferenceCalls:
    """Upper bounds of C, for `kappas` in increasing order and K up to about `ends` of each."""

    def __init__(
        self,
        weights: Array,
        spreads: Array,
        *,
        kappas: Array,
        ends: Array,
        cells: int,
        positive: bool = True,
    ) -> None:
        if not (np.all(kappas >= 0.0) and np.all(np.diff(kappas) > 0.0) and weights.size):
            raise InvalidParameter("kappas", kappas, must_be="increasing, with something to sum")
        spreads = np.maximum(spreads, _LEAST_SPREAD)
        self._kappas, self._mean = kappas, float(weights.sum())
        lows = _differences(weights, spreads, -_LOWEST, kappas[:, None], positive)
        self._starts = lows.sum(axis=1)
        reach = np.maximum(ends - self._starts, _LEAST_REACH * (1.0 + kappas) * self._mean)
        self._cells = reach / cells
        size = fast_length(2 * cells + 2)
        places = np.arange(cells + 1, dtype=np.float64)
        masses, lacking, rounding = np.zeros(0), np.zeros(kappas.size), np.zeros(kappas.size)
        for weight, spread, low in zip(weights.tolist(), spreads.tolist(), lows.T, strict=True):
            grid = low[:, None] + self._cells[:, None] * places
            own = _calls(weight, spread, kappas[:, None], grid, positive)
            term = _masses(own, self._cells[:, None])
            lacking += own[:, -1]
            if not masses.size:
                masses = term
                continue
            norms = [np.linalg.norm(one, axis=1) for one in (masses, term)]
            rounding += 2.0 * norms[0] + norms[1]
            spectrum = np.fft.rfft(masses, size) * np.fft.rfft(term, size)
            summed = np.maximum(np.fft.irfft(spectrum, size), 0.0)
            beyond = summed[:, cells + 1 :]
            lacking += self._cells * (beyond @ np.arange(1.0, beyond.shape[1] + 1.0))
            masses = summed[:, : cells + 1].copy()
            masses[:, -1] += beyond.sum(axis=1)
        above = _suffix_sums(masses)[:, 1:]
        values = np.zeros((kappas.size, cells + 1))
        values[:, :-1] = self._cells[:, None] * _suffix_sums(above)
        values = up(values + lacking[:, None], ulps(_STEPS + 4.0 * (roundings(size) + cells)))
        # A transform is off by so much of a norm, and each place counts with its distance.
        transforms = ulps(4.0 * math.log2(size) + 4.0) * rounding * math.sqrt(cells + 1.0) * reach
        scale = (1.0 + kappas) * self._mean + np.abs(self._starts) + reach
        # Calls are off by roundings of their terms, and what is below the grid by those of it.
        self._values = values + (transforms + ulps(_STEPS) * weights.size * scale)[:, None]

    def __call__(self, kappas: Array, thresholds: Array) -> Array:
        """By chords between the two next kappas, which must not be beyond them all."""
        if self._kappas.size == 1:
            return self._rows(np.zeros(thresholds.shape, dtype=np.int64), thresholds)
        low = np.searchsorted(self._kappas, kappas, side="right") - 1
        low = np.clip(low, 0, self._kappas.size - 2)
        ends = self._kappas[low], self._kappas[low + 1]
        # Rounding may put it beyond an end, where the chord is no bound.
        part = np.clip((kappas - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)
        sides = [
            self._rows(low + k, thresholds + (kappas - end) * self._mean)
            for k, end in enumerate(ends)
        ]
        # The chord leads to a threshold that is off by ulps of what was added to it.
        off = ulps(_STEPS) * (ends[1] * self._mean + np.abs(thresholds))
        return np.asarray((1.0 - part) * sides[0] + part * sides[1] + off)

    def _rows(self, rows: IntArray, thresholds: Array) -> Array:
        """Chords between the places of a grid, below it of slope -1, beyond its end as there."""
        last = self._values.shape[1] - 1
        start, cell = self._starts[rows], self._cells[rows]
        at = np.clip((thresholds - start) / cell, 0.0, last)
        first = np.minimum(at.astype(np.int64), last - 1)
        part = at - first
        chords = (1.0 - part) * self._values[rows, first] + part * self._values[rows, first + 1]
        off = ulps(_STEPS) * (np.abs(thresholds) + np.abs(start) + last * cell)
        return np.asarray(chords + np.maximum(start - thresholds, 0.0) + off)


def _differences(weights: Array, spreads: Array, z: float, kappas: Array, positive: bool) -> Array:
    """The value of each term of X - kappa Y at one z; it increases in z."""
    ours = np.exp(spreads * z - spreads**2 / 2) if positive else 0.0
    return np.asarray(weights * (ours - kappas * np.exp(-spreads * z - spreads**2 / 2)))


def _masses(calls: Array, cell: Array) -> Array:
    """On the grid, so that their calls are these."""
    slopes = np.diff(calls, axis=1) / cell
    ends = 1.0 + slopes[:, :1], -slopes[:, -1:]
    inside = np.diff(slopes, axis=1)
    return np.asarray(np.maximum(np.concatenate([ends[0], inside, ends[1]], axis=1), 0.0))


def _calls(weight: float, spread: float, kappas: Array, at: Array, positive: bool) -> Array:
    """E (p (u e^(s z - s^2/2) - kappa e^(-s z - s^2/2)) - K)_+ for K on the grid."""
    levels, square = at / weight, spread * spread
    with np.errstate(divide="ignore", over="ignore"):
        if positive:
            # e^(s z - s^2/2) where the difference is K: a root, without cancellation.
            root = np.sqrt(levels**2 + 4.0 * kappas * math.exp(-square))
            large = 2.0 * kappas * math.exp(-square) / np.maximum(root - levels, TINY)
            reached = np.where(levels > 0.0, (levels + root) / 2.0, large)
            from_z = np.log(reached) / spread + spread / 2.0
        else:
            reached = np.maximum(-levels, 0.0) / kappas
            from_z = -np.log(reached) / spread - spread / 2.0
    ours = ndtr(spread - from_z) if positive else 0.0
    theirs, above = ndtr(-spread - from_z), ndtr(-from_z)
    return np.maximum(weight * (ours - kappas * theirs) - at * above, 0.0)


def _suffix_sums(rows: Array) -> Array:
    return np.asarray(np.cumsum(rows[:, ::-1], axis=1)[:, ::-1])
