r"""The clipped residual of `train.envelope`, solved for a block of examples at a time.

The same equations, the same Newton step and the same measure of what came of it, in float64
throughout.  The label's own class takes part with probability 0 and no equation, so that no class
changes places.  Whatever is not certified within the rounds is named and left to `train.envelope`,
which also says why what is certified is right.  The rounding it allows for holds here, too: p is
:math:`e^{v - h}`, computed anew in every round, times the factor that h is told of.

**Layout.** Loops over the columns of a block are compiled to take several at once if it is plain
that what they write is not what they read.  So all numbers of a block lie in one array, at
distances that are constants: for each class a row of v, h, p and 1/(1 + sp), one after the other
(`V`, `H`, `P`, `SLOPE`), and in another, one after the other, what there is one of in each column.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled.loops import COMPILED, exp, log, rough_log

Columns = NDArray[np.intp]

# Unsigned ones never count from the end, which else is looked after one by one.
_index: Any = np.uintp

_LANES = _index(64)
_V, _H, _P, _SLOPE = np.arange(4, dtype=_index) * _LANES
_CLASS = _index(4) * _LANES
_TOP, _M, _SQUARES, _S, _ERROR, _FACTOR = np.arange(6, dtype=_index) * _LANES
_COMMON, _TOTAL, _FIRST, _SECOND, _PULL, _PULL_FIRST = np.arange(6, 12, dtype=_index) * _LANES
_COLUMN = _index(12) * _LANES
_LOWEST_LOGIT = -80.0
_ABSENT = -1e4  # as a logit: of probability 0
_LEAST_S = 1e-3
_LARGEST_FALL = 1.0
_ROUNDS = (3, 12)  # for nearly all columns, and for those they are too few for


def clipped(u: Array, y: Columns, c: float, off: float) -> tuple[Array, Columns]:
    """Clipped residuals, and the columns in which they are not certified."""
    u, y = np.ascontiguousarray(u, np.float64), np.ascontiguousarray(y, np.intp)
    residual, left = np.empty(u.shape), np.empty(y.size, np.intp)
    left = left[: softmax_residuals(u, y, c, residual, left)]
    for rounds in _ROUNDS:
        if left.size:
            left = left[: clip_residuals(u, y, left, c, off, rounds, residual)]
    return residual, left


@njit(**COMPILED)
def softmax_residuals(u: Array, y: Columns, c: float, out: Array, long: Columns) -> int:
    """Residuals into `out`; how many are longer than c, or nan, and which, into `long`."""
    classes, count = _index(u.shape[0]), _index(u.shape[1])
    block, column = np.empty(classes * _CLASS), np.empty(_COLUMN)
    at, own = np.empty(_LANES, _index), np.empty(_LANES, _index)
    found = _index(0)
    for start in range(_index(0), count, _LANES):
        size = min(_LANES, count - start)
        for j in range(_LANES):
            at[j] = start + min(j, size - _index(1))
        _read(u, y, at, own, block, column)
        _exponentials(block, column)
        for j in range(_LANES):
            column[_FACTOR + j] = 1.0 / (column[_M + j] + exp(-column[_TOP + j]))
        for i in range(classes):
            for j in range(size):
                out[i, start + j] = block[i * _CLASS + _P + j] * column[_FACTOR + j]
        for j in range(size):
            m = column[_M + j]
            share = column[_FACTOR + j]
            out[own[j], start + j] = -m * share
            # Written so that nan is long, and fails there.
            if not (m * m + column[_SQUARES + j]) * (share * share) <= c * c:
                long[found] = start + j
                found += _index(1)
    return int(found)


@njit(**COMPILED)
def clip_residuals(
    u: Array, y: Columns, chosen: Columns, c: float, off: float, rounds: int, out: Array
) -> int:
    """Clipped residuals of the chosen columns into `out`, where F is within `off` (2 + s/2).

    How many it is not for; they come first in `chosen` afterwards.
    """
    classes = _index(u.shape[0])
    block, column = np.empty(classes * _CLASS), np.empty(_COLUMN)
    at, own = np.empty(_LANES, _index), np.empty(_LANES, _index)
    waiting = np.empty(_LANES, np.bool_)
    left = _index(0)
    count = _index(chosen.size)
    for start in range(_index(0), count, _LANES):
        size = min(_LANES, count - start)
        for j in range(_LANES):
            at[j] = chosen[start + min(j, size - _index(1))]
        _read(u, y, at, own, block, column)
        _exponentials(block, column)
        _guess(own, c, block, column)
        waiting[:] = True
        for done in range(rounds + 1):
            _put_on_sphere(own, c, block, column)
            # Kept as soon as it is certified, whatever rounds other columns of the block need.
            certified = True
            for j in range(size):
                # Written so that nan is far off.
                if waiting[j] and column[_ERROR + j] <= off:
                    waiting[j] = False
                    for i in range(classes):
                        out[i, at[j]] = block[i * _CLASS + _P + j]
                    out[own[j], at[j]] = -column[_M + j]
                certified &= not waiting[j]
            if certified or done == rounds:
                break
            _newton(block, column)
        for j in range(size):
            if waiting[j]:
                chosen[left] = at[j]
                left += _index(1)
    return int(left)


@njit(**COMPILED)
def _read(u: Array, y: Columns, at: Columns, own: Columns, block: Array, column: Array) -> None:
    """Logits less that of the label, and the largest of these, at least 0."""
    for j in range(_LANES):
        own[j] = y[at[j]]
        column[_COMMON + j] = u[own[j], at[j]]
        column[_TOP + j] = 0.0
    for i in range(_index(u.shape[0])):
        row = i * _CLASS
        for j in range(_LANES):
            block[row + _V + j] = u[i, at[j]]
        for j in range(_LANES):
            v = block[row + _V + j] - column[_COMMON + j]
            # Written so that nan stays.
            v = _LOWEST_LOGIT if v < _LOWEST_LOGIT else v
            v = _ABSENT if own[j] == i else v
            block[row + _V + j] = v
            column[_TOP + j] = v if v > column[_TOP + j] else column[_TOP + j]


@njit(**COMPILED)
def _exponentials(block: Array, column: Array) -> None:
    """p in units of that of the likeliest."""
    for j in range(_LANES):
        column[_M + j] = 0.0
        column[_SQUARES + j] = 0.0
    for row in range(_index(0), _index(block.size), _CLASS):
        for j in range(_LANES):
            p = exp(block[row + _V + j] - column[_TOP + j])
            block[row + _P + j] = p
            column[_M + j] += p
            column[_SQUARES + j] += p * p


@njit(**COMPILED)
def _guess(own: Columns, c: float, block: Array, column: Array) -> None:
    """h and s from the margin clip's answer, as `train.envelope` has them."""
    for j in range(_LANES):
        m = column[_M + j]
        factor = c / np.sqrt(m * m + column[_SQUARES + j])
        m *= factor
        common = column[_TOP + j] - log(factor) + log(1.0 - m)
        s = max(m * common / (c * c), _LEAST_S)
        column[_FACTOR + j] = factor * s * exp(min(common - s * m, 80.0))
        column[_M + j] = 0.0
        column[_SQUARES + j] = 0.0
    for row in range(_index(0), _index(block.size), _CLASS):
        for j in range(_LANES):
            y = block[row + _P + j] * column[_FACTOR + j]
            # Where 1 + y is 1 in floats, z is y.
            z = max(rough_log(1.0 + y), y / (1.0 + y))
            p = z * (1.0 + 0.83 * z) / (1.0 + 1.33 * z)
            block[row + _P + j] = p
            column[_M + j] += p
            column[_SQUARES + j] += p * p
    for j in range(_LANES):
        m = column[_M + j]
        factor = c / np.sqrt(m * m + column[_SQUARES + j])
        column[_FACTOR + j] = factor
        column[_S + j] = m * factor * log(1.0 - m * factor)
    for i in range(_index(block.size) // _CLASS):
        row = i * _CLASS
        for j in range(_LANES):
            p = block[row + _P + j] * column[_FACTOR + j]
            h = block[row + _V + j] - rough_log(p + 1e-300)
            h = 0.0 if own[j] == i else h
            block[row + _H + j] = h
            column[_S + j] += p * h
    for j in range(_LANES):
        column[_S + j] = max(column[_S + j] / (c * c), _LEAST_S)


@njit(**COMPILED)
def _put_on_sphere(own: Columns, c: float, block: Array, column: Array) -> None:
    """p from h, both scaled so that m^2 + |p|^2 = c^2, and |F|/(2 + s/2)."""
    for j in range(_LANES):
        column[_M + j] = 0.0
        column[_SQUARES + j] = 0.0
        column[_ERROR + j] = 0.0
    for row in range(_index(0), _index(block.size), _CLASS):
        for j in range(_LANES):
            p = exp(block[row + _V + j] - block[row + _H + j])
            block[row + _P + j] = p
            column[_M + j] += p
            column[_SQUARES + j] += p * p
    for j in range(_LANES):
        m = column[_M + j]
        factor = c / np.sqrt(m * m + column[_SQUARES + j])
        m *= factor
        column[_FACTOR + j] = factor
        column[_SQUARES + j] = log(factor)
        column[_M + j] = m
        column[_COMMON + j] = column[_S + j] * m - log(1.0 - m)
    for i in range(_index(block.size) // _CLASS):
        row = i * _CLASS
        for j in range(_LANES):
            p = block[row + _P + j] * column[_FACTOR + j]
            h = block[row + _H + j] - column[_SQUARES + j]
            block[row + _P + j] = p
            block[row + _H + j] = h
            f = column[_S + j] * p + column[_COMMON + j] - h
            column[_ERROR + j] += 0.0 if own[j] == i else f * f
    for j in range(_LANES):
        column[_ERROR + j] = np.sqrt(column[_ERROR + j]) / (2.0 + column[_S + j] / 2)


@njit(**COMPILED)
def _newton(block: Array, column: Array) -> None:
    """The next h and s, as `train.envelope.newton` has them for p on the sphere."""
    for j in range(_TOTAL, _COLUMN):
        column[j] = 0.0
    for row in range(_index(0), _index(block.size), _CLASS):
        for j in range(_LANES):
            p = block[row + _P + j]
            h = block[row + _H + j]
            slope = 1.0 / (1.0 + column[_S + j] * p)
            block[row + _SLOPE + j] = slope
            w = p * slope
            column[_TOTAL + j] += w
            column[_PULL + j] += w * h
            w *= p
            column[_FIRST + j] += w
            column[_PULL_FIRST + j] += w * h
            column[_SECOND + j] += w * p
    for j in range(_LANES):
        m, s = column[_M + j], column[_S + j]
        total, first, pull = column[_TOTAL + j], column[_FIRST + j], column[_PULL + j]
        steep = s + 1.0 / (1.0 - m)
        by_total = 1.0 + steep * total
        by_first = m - steep * first
        offset = steep * pull - log(1.0 - m)
        cross = m * total + first
        missing = column[_PULL_FIRST + j] + m * pull
        bent = (m * first + column[_SECOND + j]) * by_total + cross * by_first
        new = (missing * by_total - cross * offset) / bent
        column[_COMMON + j] = (offset + by_first * new) / by_total
        column[_TOTAL + j] = new
        column[_S + j] = max(new, s / 1000)
    for row in range(_index(0), _index(block.size), _CLASS):
        for j in range(_LANES):
            off = block[row + _H + j] - block[row + _P + j] * column[_TOTAL + j]
            step = (off - column[_COMMON + j]) * block[row + _SLOPE + j]
            block[row + _H + j] -= min(step, _LARGEST_FALL)
