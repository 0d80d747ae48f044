r"""Upper bounds of call functions of differences of sums of log-normal variables.

`DifferenceCalls` bounds :math:`C(K) = E (X - \kappa Y - K)_+` for

.. math:: X = u \sum_j p_j e^{\rho_j z_j - \rho_j^2/2} , \qquad
    Y = \sum_j p_j e^{-\rho_j z_j - \rho_j^2/2} ,

u being 1 or 0, with standard normal :math:`z_j`.  Terms of one group share theirs, groups are
independent.  Sums are put on grids as in `lognormal_sums`; mass below the beginning of a grid is
raised to it.

C is convex in :math:`(\kappa, K)` together and does not increase in K.  So between two
:math:`\kappa` it lies below the chord of any two K whose chord leads to the requested K: here those
with the same :math:`K + \kappa\,E Y`, along which C hardly bends.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import TINY, Array, IntArray, roundings, ulps, up
from lastiterate.bounds.shuffling.lognormal_sums import (
    FARTHEST_Z,
    LEAST_SPREAD,
    ROUNDINGS,
    Z_KNOTS,
    convolved,
    masses_on_grid,
    members_of,
)
from lastiterate.errors import InvalidParameter

_LOWEST_Z = 4.0  # standard deviations below the mean, where a grid begins
_LEAST_REACH = 4.0  # of a grid beyond its beginning, in units of the sum of all p


class DifferenceCalls:
    """Upper bounds of E (X - kappa Y - K)_+ for `kappas` in increasing order.

    K may be up to about `ends` for each of them.  Terms of the same group share their standard
    normal variable; by default there are no groups.
    """

    def __init__(
        self,
        weights: Array,
        spreads: Array,
        *,
        kappas: Array,
        ends: Array,
        cells: int,
        positive: bool = True,
        groups: IntArray | None = None,
    ) -> None:
        if not (np.all(kappas >= 0.0) and np.all(np.diff(kappas) > 0.0) and weights.size):
            raise InvalidParameter("kappas", kappas, must_be="increasing, with something to sum")
        spreads = np.maximum(spreads, LEAST_SPREAD)
        self._kappas, self._mean = kappas, float(weights.sum())
        members = members_of(weights.size, groups)
        every = _differences(weights, spreads, -_LOWEST_Z, kappas[:, None], positive)
        lows = np.stack([every[:, one].sum(axis=1) for one in members])
        self._starts = lows.sum(axis=0)
        reach = np.maximum(ends - self._starts, _LEAST_REACH * (1.0 + kappas) * self._mean)
        self._cells = reach / cells
        points = self._cells[:, None] * np.arange(cells + 1, dtype=np.float64)

        def terms() -> Iterator[tuple[Array, Array]]:
            for one, low in zip(members, lows, strict=True):
                grid = low[:, None] + points
                calls = _group_difference_calls(weights[one], spreads[one], kappas, grid, positive)
                yield masses_on_grid(calls, self._cells[:, None]), calls[:, -1]

        total = convolved(terms(), np.zeros(kappas.size), self._cells, cells)
        values = np.zeros((kappas.size, cells + 1))
        above = _plain_suffix_sums(total.masses)[:, 1:]
        values[:, :-1] = self._cells[:, None] * _plain_suffix_sums(above)
        relative = ulps(ROUNDINGS + 4.0 * (roundings(total.size) + cells))
        values = up(values + total.missing[:, None], relative)
        scale = (1.0 + kappas) * self._mean + np.abs(self._starts) + reach
        # Calls are off by roundings of their terms, and mass below the grid by those of the grid.
        off = total.rounding(cells, reach) + ulps(ROUNDINGS) * weights.size * scale
        self._values = values + off[:, None]

    def __call__(self, kappas: Array, thresholds: Array) -> Array:
        """The chords between neighbouring kappas; all must be within those of the table."""
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
        # The chord leads to a threshold that is off by ulps of the terms added to it.
        off = ulps(ROUNDINGS) * (ends[1] * self._mean + np.abs(thresholds))
        return np.asarray((1.0 - part) * sides[0] + part * sides[1] + off)

    def _rows(self, rows: IntArray, thresholds: Array) -> Array:
        """Chords between points of a grid; of slope -1 below it, constant beyond its end."""
        last = self._values.shape[1] - 1
        start, cell = self._starts[rows], self._cells[rows]
        at = np.clip((thresholds - start) / cell, 0.0, last)
        first = np.minimum(at.astype(np.int64), last - 1)
        part = at - first
        chords = (1.0 - part) * self._values[rows, first] + part * self._values[rows, first + 1]
        off = ulps(ROUNDINGS) * (np.abs(thresholds) + np.abs(start) + last * cell)
        return np.asarray(chords + np.maximum(start - thresholds, 0.0) + off)


def _group_difference_calls(
    weights: Array, spreads: Array, kappas: Array, at: Array, positive: bool
) -> Array:
    """`_difference_calls` of a sum of terms that share their z, one row for each kappa.

    The sum increases in z.  At the values K that it has at some z the expectation is in closed
    form; chords between these lie above it, as do slope -1 below them and a constant beyond.
    """
    if weights.size == 1:
        only = float(weights[0]), float(spreads[0])
        return _difference_calls(*only, kappas[:, None], at, positive)
    knots = min(Z_KNOTS, at.shape[1] + 100)
    z = np.linspace(-FARTHEST_Z, FARTHEST_Z + float(spreads.max()), knots)
    exponents, half = np.multiply.outer(z, spreads), 0.5 * spreads**2
    with np.errstate(over="ignore"):
        gained = np.exp(exponents - half) @ weights if positive else np.zeros(z.size)
        lost = np.exp(-exponents - half) @ weights
    gained_above = ndtr(spreads - z[:, None]) @ weights if positive else np.zeros(z.size)
    lost_above, above = ndtr(-spreads - z[:, None]) @ weights, ndtr(-z)
    # Rounding in the exponents moves K, and the function has slope -1 at most.
    off = ulps(ROUNDINGS + weights.size + 8.0 * spreads.max() * (FARTHEST_Z + spreads.max()))
    rows = []
    for kappa, points in zip(kappas.tolist(), at, strict=True):
        values = gained - kappa * lost
        calls = np.maximum(gained_above - kappa * lost_above - values * above, 0.0)
        calls = calls + off * ((1.0 + kappa) * weights.sum() + gained + kappa * lost)
        row = np.interp(points, values, calls)
        rows.append(row + np.maximum(values[0] - points, 0.0))
    return np.stack(rows)


def _difference_calls(
    weight: float, spread: float, kappas: Array, at: Array, positive: bool
) -> Array:
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
    gained = ndtr(spread - from_z) if positive else 0.0
    subtracted, above = ndtr(-spread - from_z), ndtr(-from_z)
    return np.maximum(weight * (gained - kappas * subtracted) - at * above, 0.0)


def _differences(weights: Array, spreads: Array, z: float, kappas: Array, positive: bool) -> Array:
    """The value of each term of X - kappa Y at one z; it increases in z."""
    gained = np.exp(spreads * z - spreads**2 / 2) if positive else 0.0
    return np.asarray(weights * (gained - kappas * np.exp(-spreads * z - spreads**2 / 2)))


def _plain_suffix_sums(rows: Array) -> Array:
    return np.asarray(np.cumsum(rows[:, ::-1], axis=1)[:, ::-1])
