r"""A normal result moved by a hidden, random amount: what it leaks, cell by cell.

One-sided: :math:`P = E_Y N(Y, 1)` against :math:`Q = N(0, 1)`, with :math:`Y \ge 0` never revealed;
two-sided: against :math:`Q = E_Y N(-Y, 1)`.  The likelihood ratio increases in the result z, so
the best tests are thresholds, :math:`\{z > t\}` or its complement, and hockey-stick divergences, in
both directions, increase if Y is replaced by something larger: Y may be rounded up, even to
infinity.

The line is cut into cells.  In a cell of mass p under P and q under Q, where all logarithms of the
likelihood ratio lie in [a, b], the pair is dominated by two atoms, of losses a and b, with the same
two masses: that is a mean-preserving spread of the likelihood ratio, and hockey sticks are convex
in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array, IntArray, ulps, up
from lastiterate.errors import InvalidParameter

_WIDTH = 0.08
_FARTHEST = 9.0  # standard deviations, beyond which there is 1e-19
_NEGLIGIBLE = 1e-18
_FAR = 700.0  # a loss beyond which a likelihood ratio is no number
_LARGEST = 25.0  # an amount so large that it is taken for infinite
_MOST_LOST = 0.5  # beyond which no guarantee is of any use


@dataclass(frozen=True, eq=False)
class LossCells:
    """Masses under P and under Q, rounding included in `off` (of P) and `other_off` (of Q).

    The losses of cell i lie in [lows[i], highs[i]]; the `infinite` mass is in no cell.
    """

    lows: Array
    highs: Array
    masses: Array
    others: Array
    off: Array
    other_off: Array
    infinite: float

    def on_grid(self, cell: float, *, least: float, most: float) -> OnGrid:
        """Two atoms for each cell.

        Losses below `least` are raised to it, cells above `most` are counted as infinite.
        """
        whole = self.masses + self.off
        kept = self.highs <= most
        low = np.floor(np.clip(self.lows, least, most) / cell).astype(np.int64)
        high = np.ceil(np.clip(self.highs, least, most) / cell).astype(np.int64)
        high = np.maximum(high, low + 1)
        weight = np.exp(np.minimum(low * cell, _FAR))
        apart = -np.expm1((low - high) * cell)
        rounding = self.off + self.other_off * weight + ulps(8 + 4 * np.abs(low * cell)) * whole
        excess = self.masses - self.others * weight + rounding
        upper = np.clip(excess / apart, 0.0, whole)
        upper = np.where((self.lows < least) | (low * cell > _FAR), whole, upper)
        first = int(low.min())
        size = int(high.max()) - first + 1
        at_low = _counted(low - first, np.where(kept, whole - upper, 0.0), size)
        at_high = _counted(high - first, np.where(kept, upper, 0.0), size)
        infinite = self.infinite + float(whole[~kept].sum())
        return OnGrid(first, at_low + at_high, up(infinite, ulps(whole.size)))


@dataclass(frozen=True, eq=False)
class OnGrid:
    """Masses of P at consecutive points of a grid, and the infinite mass."""

    first: int
    masses: Array
    infinite: float


_NOTHING_PROMISED = LossCells(
    *(np.zeros(1),) * 2, np.ones(1), np.zeros(1), *(np.zeros(1),) * 2, 1.0
)


def _counted(points: IntArray, masses: Array, size: int) -> Array:
    return np.asarray(np.bincount(points, masses, size), dtype=np.float64)


def shift_losses(levels: Array, masses: Array, *, two_sided: bool = False) -> list[LossCells]:
    """The losses of P against Q and of Q against P; of one of them if they are the same.

    Y is levels[i] with probability masses[i], and infinite with the rest of 1.
    """
    if not (np.all(levels >= 0.0) and np.all(masses >= 0.0)):
        raise InvalidParameter("levels", levels, must_be="at least 0, as must be their masses")
    kept = (levels <= _LARGEST) & (masses > 0.0)
    levels, masses = levels[kept], masses[kept]
    lost = max(1.0 - math.fsum(masses), 0.0) + ulps(1)
    if not lost < _MOST_LOST:
        return [_NOTHING_PROMISED] * (1 if two_sided else 2)
    edges = _edges(levels, masses)
    ratios, error = _log_ratios(levels, masses, lost, edges)
    ours = _tails(levels, masses, edges)
    if two_sided:
        mirrored, other_error = _log_ratios(levels, masses, lost, -edges)
        ratios, error = ratios - mirrored, error + other_error
        theirs = _tails(-levels, masses, edges)
    else:
        theirs = _tails(np.zeros(1), np.ones(1), edges)
    low, high = ratios - error, ratios + error
    forwards = _cells(low, high, ours, theirs, below=0, infinite=ours.above[-1] + lost)
    if two_sided:
        return [forwards]
    # Below the first edge Q's losses against P may be as large as one likes.
    backwards = _cells(-high, -low, theirs, ours, below=1, infinite=theirs.below[0])
    return [forwards, backwards]


@dataclass(frozen=True, eq=False)
class _Tails:
    """Probabilities below and above each edge, each good to `error` of itself."""

    below: Array
    above: Array
    error: Array

    def between(self) -> tuple[Array, Array]:
        """The probabilities of the cells, by the smaller tail, and bounds on their errors."""
        falling = self.above[:-1] < self.below[1:]
        cells = np.where(falling, -np.diff(self.above), np.diff(self.below))
        larger = np.where(falling, self.above[:-1], self.below[1:])
        error = np.maximum(self.error[:-1], self.error[1:])
        return np.maximum(cells, 0.0), 2.0 * error * larger


def _tails(means: Array, masses: Array, edges: Array) -> _Tails:
    away = edges[:, None] - means
    error = ulps(32 + 2 * np.abs(edges) ** 2 + means.size)
    smaller = ndtr(-np.abs(away))
    larger = 1.0 - smaller
    beneath = away < 0.0
    below = np.where(beneath, smaller, larger) @ masses
    above = np.where(beneath, larger, smaller) @ masses
    return _Tails(below, above, error)


def _edges(levels: Array, masses: Array) -> Array:
    """Edges from far below 0 to where P has almost no mass left."""
    top = _FARTHEST + float(levels.max(initial=0.0))
    if top > _FARTHEST + 1.0:
        tops = np.linspace(_FARTHEST, top, 33)
        left = ndtr(levels - tops[:, None]) @ masses
        top = float(tops[min(int(np.searchsorted(-left, -_NEGLIGIBLE)), tops.size - 1)])
    return np.linspace(-_FARTHEST, top, int((top + _FARTHEST) / _WIDTH) + 2)


def _log_ratios(levels: Array, masses: Array, lost: float, at: Array) -> tuple[Array, Array]:
    """log of the average over Y of e^(Yz - Y^2/2), and a bound on its error."""
    exponents = at[:, None] * levels - 0.5 * levels * levels
    excess = np.expm1(exponents)
    total = excess @ masses - lost
    size = np.abs(excess) @ masses + lost
    steps = ulps(32.0 + levels.size + 4.0 * float(np.abs(exponents).max()))
    # Near 1 its distance from 1 tells the logarithm; where next to nothing is left, it does not.
    near = total > -0.5
    logs = np.log1p(np.where(near, total, 0.0))
    errors = steps * size / (1.0 + np.where(near, total, 0.0)) + ulps(4) * np.abs(logs)
    top = exponents.max(axis=1)
    with np.errstate(under="ignore"):
        sums = np.exp(exponents - top[:, None]) @ masses
    direct = top + np.log(sums)
    direct_errors = steps * (1.0 + np.abs(direct))
    return np.where(near, logs, direct), np.where(near, errors, direct_errors)


def _cells(
    lows: Array, highs: Array, ours: _Tails, theirs: _Tails, *, below: int, infinite: float
) -> LossCells:
    """Loss cells: beyond one end the loss is infinite, beyond the other it is that at the edge."""
    masses, off = ours.between()
    others, other_off = theirs.between()
    ends = (highs[0], ours.below[0]) if below == 0 else (highs[-1], ours.above[-1])
    cell_lows = np.minimum(lows[:-1], lows[1:])
    cell_highs = np.maximum(highs[:-1], highs[1:])
    # At that end only P's mass counts: as if Q had as little there as the loss allows.
    edge, left = float(ends[0]), float(ends[1])
    return LossCells(
        np.append(cell_lows, edge),
        np.append(cell_highs, edge),
        np.append(masses, left),
        np.append(others, 0.0),
        np.append(off, ulps(64) * left),
        np.append(other_off, 0.0),
        float(infinite),
    )
