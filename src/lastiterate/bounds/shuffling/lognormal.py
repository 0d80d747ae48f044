r"""Upper bounds of call functions :math:`C(K) = E (X - K)_+` of sums of log-normal variables.

`call_function` bounds C for :math:`X = \sum_j w_j e^{\rho_j z_j - \rho_j^2/2}` with independent
standard normal :math:`z_j`; terms of one group share theirs.  `DifferenceCalls` bounds that of a
difference of two such sums, with opposite signs of all :math:`z_j`.

Each term is replaced by a variable on a grid whose own C is the same at the points of the grid and
linear in between.  C is convex, so it does not decrease anywhere: the new term is larger in convex
order, with the same mean, and so is the sum.  Mass beyond the end of the grid is put there, and
its missing mean is added to all C; this is exact for K on the grid, since C has slope -1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.powers import fast_length
from lastiterate._numerics.rounding import TINY, Array, IntArray, roundings, suffix_sums, ulps, up
from lastiterate.errors import InvalidParameter

_LEAST_SPREAD = 1e-4  # of the logarithm; smaller ones are raised to it, which is larger in C
_ROUNDINGS = 64.0  # of the value at one point of a grid
_FARTHEST_Z, _Z_KNOTS = 9.0, 1601  # of the sum of a group
_GRID_REFINEMENTS = np.array([1.0, 8.0])  # a second grid is so much finer, for small thresholds
_LOWEST_Z = 4.0  # standard deviations below the mean, where a grid begins
_LEAST_REACH = 4.0  # of a grid beyond its beginning, in units of the sum of all p


@dataclass(frozen=True, eq=False)
class CallFunction:
    """Upper bounds of E (X - K)_+ for K on grids 0, cell, 2 cell, .."""

    grids: tuple[tuple[float, Array], ...]

    def __call__(self, thresholds: Array) -> Array:
        """The least chord of all grids, rounded up; beyond its end a grid has its last value."""
        return np.asarray(np.min([_chords(thresholds, *grid) for grid in self.grids], axis=0))


def _chords(thresholds: Array, cell: float, values: Array) -> Array:
    at = np.clip(thresholds / cell, 0.0, values.size - 1.0)
    first = np.minimum(at.astype(np.int64), values.size - 2)
    part = at - first
    chords = (1.0 - part) * values[first] + part * values[first + 1]
    return np.asarray(up(chords + np.maximum(-thresholds, 0.0), ulps(_ROUNDINGS)))


def call_function(
    weights: Array, spreads: Array, *, groups: IntArray, end: float, cells: int
) -> CallFunction:
    """Bounds on E (X - K)_+ for terms with these means and standard deviations of the logarithm.

    Terms of the same group share their standard normal variable.
    """
    present = weights > 0.0
    weights, spreads = weights[present], np.maximum(spreads[present], _LEAST_SPREAD)
    if not weights.size:
        return CallFunction(((1.0, np.zeros(2)),))
    ends = end / _GRID_REFINEMENTS
    cell = ends / cells
    grids = cell[:, None] * np.arange(cells + 1, dtype=np.float64)
    members = _members_of(weights.size, groups[present])
    own = np.stack([_group_calls(weights[one], spreads[one], grids) for one in members])
    terms = ((_masses_on_grid(calls, cell[:, None]), np.zeros(ends.size)) for calls in own)
    total = _sum_of(terms, own[..., -1].sum(axis=0), cell, cells)
    values = np.zeros(total.masses.shape)
    for row, masses, width in zip(values, total.masses, cell, strict=True):
        row[:-1] = width * suffix_sums(suffix_sums(masses)[1:])
    relative = ulps(_ROUNDINGS + 4 * roundings(total.size))
    absolute = ulps(_ROUNDINGS) * weights.size * (float(weights.sum()) + ends)
    off = total.rounding(cells, ends) + absolute
    rows = up(values + total.missing[:, None], relative) + off[:, None]
    return CallFunction(tuple(zip(cell.tolist(), np.asarray(rows), strict=True)))


def _term_calls(weights: Array, spreads: Array, grids: Array) -> Array:
    """E (w e^(s z - s^2/2) - K)_+ for K on grids, which begin with 0: one row for each term."""
    weight, spread, points = weights[:, None, None], spreads[:, None, None], grids[:, 1:]
    away = np.log(weight / points) / spread
    own = weight * ndtr(away + spread / 2) - points * ndtr(away - spread / 2)
    first = np.broadcast_to(weight, (*own.shape[:-1], 1))
    return np.concatenate([first, np.maximum(own, 0.0)], axis=-1)


def _group_calls(weights: Array, spreads: Array, grids: Array) -> Array:
    """E (sum_j w_j e^(s_j z - s_j^2/2) - K)_+ for K on grids, all terms with the same z.

    The sum increases in z.  At the values K that it has at some z, the expectation is in closed
    form; it is convex in K, so that chords between these lie above it.
    """
    if np.all(spreads == spreads[0]):
        return np.asarray(_term_calls(weights.sum(keepdims=True), spreads[:1], grids)[0])
    at = np.linspace(-_FARTHEST_Z, _FARTHEST_Z + float(spreads.max()), _Z_KNOTS)
    with np.errstate(over="ignore"):
        sums = np.exp(np.multiply.outer(at, spreads) - 0.5 * spreads**2) @ weights
    inside = sums <= 4.0 * grids.max() + float(weights.sum())
    at, sums = at[inside], sums[inside]
    calls = ndtr(spreads - at[:, None]) @ weights - sums * ndtr(-at)
    # Rounding in the exponents moves K, and the function has slope -1 at most.
    off = ulps(_ROUNDINGS + 8.0 * spreads.max() * (_FARTHEST_Z + spreads.max()))
    calls = np.maximum(calls, 0.0) + off * (sums + weights.sum())
    known = np.append(0.0, sums), np.append(weights.sum(), calls)
    return np.asarray(np.interp(grids, *known))


class DifferenceCalls:
    r"""Upper bounds of :math:`C(K) = E (X - \kappa Y - K)_+` for `kappas` in increasing order.

    .. math:: X = u \sum_j p_j e^{\rho_j z_j - \rho_j^2/2} , \qquad
        Y = \sum_j p_j e^{-\rho_j z_j - \rho_j^2/2}

    with standard normal :math:`z_j`; u is 1, or 0 if not `positive`.  Terms of one group share
    theirs, groups are independent; by default there are no groups.  K may be up to about `ends` for
    each of the kappas.  Sums are put on grids as in `call_function`; mass below the beginning of a
    grid is raised to it.

    C is convex in :math:`(\kappa, K)` together and does not increase in K.  So between two
    :math:`\kappa` it lies below the chord of any two K whose chord leads to the requested K: here
    those with the same :math:`K + \kappa\,E Y`, along which C hardly bends.
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
        spreads = np.maximum(spreads, _LEAST_SPREAD)
        self._kappas, self._mean = kappas, float(weights.sum())
        members = _members_of(weights.size, groups)
        every = _values_at(weights, spreads, -_LOWEST_Z, kappas[:, None], positive)
        lows = np.stack([every[:, one].sum(axis=1) for one in members])
        self._starts = lows.sum(axis=0)
        reach = np.maximum(ends - self._starts, _LEAST_REACH * (1.0 + kappas) * self._mean)
        self._cells = reach / cells
        points = self._cells[:, None] * np.arange(cells + 1, dtype=np.float64)

        def terms() -> Iterator[tuple[Array, Array]]:
            for one, low in zip(members, lows, strict=True):
                grid = low[:, None] + points
                calls = _group_difference_calls(weights[one], spreads[one], kappas, grid, positive)
                yield _masses_on_grid(calls, self._cells[:, None]), calls[:, -1]

        total = _sum_of(terms(), np.zeros(kappas.size), self._cells, cells)
        values = np.zeros((kappas.size, cells + 1))
        above = _plain_suffix_sums(total.masses)[:, 1:]
        values[:, :-1] = self._cells[:, None] * _plain_suffix_sums(above)
        relative = ulps(_ROUNDINGS + 4.0 * (roundings(total.size) + cells))
        values = up(values + total.missing[:, None], relative)
        scale = (1.0 + kappas) * self._mean + np.abs(self._starts) + reach
        # Calls are off by roundings of their terms, and mass below the grid by those of the grid.
        off = total.rounding(cells, reach) + ulps(_ROUNDINGS) * weights.size * scale
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
        off = ulps(_ROUNDINGS) * (ends[1] * self._mean + np.abs(thresholds))
        return np.asarray((1.0 - part) * sides[0] + part * sides[1] + off)

    def _rows(self, rows: IntArray, thresholds: Array) -> Array:
        """Chords between points of a grid; of slope -1 below it, constant beyond its end."""
        last = self._values.shape[1] - 1
        start, cell = self._starts[rows], self._cells[rows]
        at = np.clip((thresholds - start) / cell, 0.0, last)
        first = np.minimum(at.astype(np.int64), last - 1)
        part = at - first
        chords = (1.0 - part) * self._values[rows, first] + part * self._values[rows, first + 1]
        off = ulps(_ROUNDINGS) * (np.abs(thresholds) + np.abs(start) + last * cell)
        return np.asarray(chords + np.maximum(start - thresholds, 0.0) + off)


def _values_at(weights: Array, spreads: Array, z: float, kappas: Array, positive: bool) -> Array:
    """The value of each term of X - kappa Y at one z; it increases in z."""
    gained = np.exp(spreads * z - spreads**2 / 2) if positive else 0.0
    return np.asarray(weights * (gained - kappas * np.exp(-spreads * z - spreads**2 / 2)))


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
    knots = min(_Z_KNOTS, at.shape[1] + 100)
    z = np.linspace(-_FARTHEST_Z, _FARTHEST_Z + float(spreads.max()), knots)
    exponents, half = np.multiply.outer(z, spreads), 0.5 * spreads**2
    with np.errstate(over="ignore"):
        gained = np.exp(exponents - half) @ weights if positive else np.zeros(z.size)
        lost = np.exp(-exponents - half) @ weights
    gained_above = ndtr(spreads - z[:, None]) @ weights if positive else np.zeros(z.size)
    lost_above, above = ndtr(-spreads - z[:, None]) @ weights, ndtr(-z)
    # Rounding in the exponents moves K, and the function has slope -1 at most.
    off = ulps(_ROUNDINGS + weights.size + 8.0 * spreads.max() * (_FARTHEST_Z + spreads.max()))
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


def _plain_suffix_sums(rows: Array) -> Array:
    return np.asarray(np.cumsum(rows[:, ::-1], axis=1)[:, ::-1])


def _members_of(count: int, groups: IntArray | None) -> list[IntArray]:
    """The terms of each group; each is one of its own where there are no groups."""
    if groups is None:
        return list(np.arange(count)[:, None])
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]


def _masses_on_grid(calls: Array, cell: Array) -> Array:
    """The probabilities at the points of a grid whose call function is `calls` there."""
    slopes = np.diff(calls, axis=1) / cell
    ends = 1.0 + slopes[:, :1], -slopes[:, -1:]
    inside = np.diff(slopes, axis=1)
    return np.asarray(np.maximum(np.concatenate([ends[0], inside, ends[1]], axis=1), 0.0))


def _sum_of(
    terms: Iterable[tuple[Array, Array]], missing: Array, cell: Array, cells: int
) -> _GridSum:
    """The law of the sum of `terms`, each given by its masses and its own missing mean."""
    size = fast_length(2 * cells + 2)
    masses, norms = np.zeros(0), np.zeros(cell.size)
    for term, own_missing in terms:
        missing = missing + own_missing
        if not masses.size:
            masses = term
            continue
        norms += 2.0 * np.linalg.norm(masses, axis=1) + np.linalg.norm(term, axis=1)
        spectrum = np.fft.rfft(masses, size) * np.fft.rfft(term, size)
        summed = np.maximum(np.fft.irfft(spectrum, size), 0.0)
        beyond = summed[:, cells + 1 :]
        missing = missing + cell * (beyond @ np.arange(1.0, beyond.shape[1] + 1.0))
        masses = summed[:, : cells + 1].copy()
        masses[:, -1] += beyond.sum(axis=1)
    return _GridSum(masses, missing, norms, size)


@dataclass(frozen=True, eq=False)
class _GridSum:
    """A sum of independent variables on grids, one row for each grid.

    `missing` is the mean of the mass that lay beyond the end, `norms` a sum of norms to which
    rounding errors of the transforms of length `size` are proportional.
    """

    masses: Array
    missing: Array
    norms: Array
    size: int

    def rounding(self, cells: int, reach: Array) -> Array:
        # A transform is off by so much of a norm, and each point counts with its distance.
        relative = ulps(4.0 * math.log2(self.size) + 4.0)
        return np.asarray(relative * self.norms * math.sqrt(cells + 1.0) * reach)
