"""Loops of noisy descent: a step on the grid, residuals, outputs, rows and products with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array

# Fused products are more exact, never less.  Any other liberty would undo the reductions below.
COMPILED: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "cache": True}

# Without them, for what is to be the same to the bit whether Numba is there or not.
STEP_BY_STEP = COMPILED | {"fastmath": False}

MOST_OUTPUTS = 100  # beyond which tiles outgrow the cache
_index: Any = np.uintp  # see `compiled.envelope`
_COLUMNS = _index(200)
_ROWS, _OUTPUTS = _index(4), _index(5)  # of a tile; their products are kept in registers
_LINE = 8  # numbers in a line of the cache
_1, _2, _3, _4 = (_index(k) * _COLUMNS for k in range(1, 5))
_ANY_ORDER: dict[str, Any] = COMPILED | {"fastmath": {"contract", "reassoc"}}
_NONE = np.empty(0)
_WHOLE_SHIFT = 1.5 * 2.0**52  # added to a number, leaves it rounded in the lowest bits
_WHOLE_BITS = 0x4338 << 48
_BIAS = 1023
_MANTISSA = 52
_PER_LOG_2 = 1.0 / math.log(2.0)
_LOG_2 = float.fromhex("0x1.62e42feep-1")  # so short that multiples are exact
_LOG_2_REST = float.fromhex("0x1.a39ef35793c76p-33")
_LEAST_EXPONENT = -700.0
_ROOT_OF_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.0**-1022

_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (
    1.0 / math.factorial(k) for k in range(2, 14)
)


@njit(**STEP_BY_STEP)
def step(
    whole: NDArray[np.int64],
    parameters: Array,
    gradient_sum: Array,
    noise: NDArray[np.int64],
    batch_size: int,
    regulariser: float,
    per_unit: float,
    unit: float,
) -> None:
    """Change the whole numbers and the parameters in place; `per_unit` is step size over unit."""
    for i in range(whole.shape[0]):
        for k in range(whole.shape[1]):
            direction = gradient_sum[i, k] / batch_size + regulariser * parameters[i, k]
            whole[i, k] += noise[i, k] - np.int64(np.rint(direction * per_unit))
            parameters[i, k] = unit * whole[i, k]


# Clipped residuals of the logistic loss, several at a time.


def residuals(u: Array, y: NDArray[Any], clip: float) -> Array:
    """The sigmoid of u less y, cut to [-clip, clip]; for one row of outputs."""
    found = np.empty(u.shape)
    # As they are if labels, as others would be compiled for anew.
    targets = y if y.dtype == np.intp else y.astype(np.float64, copy=False)
    _residuals(u.ravel(), targets, clip, found.ravel())
    return found


@njit(**COMPILED)
def _residuals(u: Array, y: Array, clip: float, out: Array) -> None:
    for k in range(out.size):
        e = exp(-abs(u[k]))
        r = (1.0 if u[k] >= 0.0 else e) / (1.0 + e) - y[k]
        # Written so that nan stays.
        r = clip if r > clip else r
        out[k] = -clip if r < -clip else r


# Outputs from products with rows, and back, in one pass each, rounded as numpy does in several.


@njit(**STEP_BY_STEP)
def outputs(products: NDArray[Any], factors: Array, constants: Array, out: Array) -> None:
    """factors * products + constants; of the products, one column for each of the constants."""
    for i in range(out.shape[0]):
        constant = constants[i]
        for k in range(out.shape[1]):
            out[i, k] = np.float64(products[k, i]) * factors[k] + constant


@njit(**STEP_BY_STEP)
def centred(
    products: NDArray[Any],
    factors: Array,
    at_centre: Array,
    shifts: Array,
    constants: Array,
    out: Array,
) -> None:
    """factors * products - at_centre * shifts + constants."""
    for i in range(out.shape[0]):
        centre, constant = at_centre[i], constants[i]
        for k in range(out.shape[1]):
            scaled = np.float64(products[k, i]) * factors[k]
            out[i, k] = (scaled - centre * shifts[k]) + constant


@njit(**STEP_BY_STEP)
def weighed(residual: Array, factors: Array, out: NDArray[Any]) -> None:
    """factors * residual in the precision of `out`."""
    for i in range(residual.shape[0]):
        for k in range(residual.shape[1]):
            out[i, k] = residual[i, k] * factors[k]


@njit(**STEP_BY_STEP)
def scaled_rows(rows: NDArray[Any], factors: Array, out: Array) -> None:
    """factors * rows in float64, row by row."""
    for k in range(rows.shape[0]):
        factor = factors[k]
        for j in range(rows.shape[1]):
            out[k, j] = np.float64(rows[k, j]) * factor


@njit(**STEP_BY_STEP)
def centred_rows(
    rows: NDArray[Any], factors: Array, shifts: Array, mean: Array, out: Array
) -> None:
    """factors * rows - shifts * mean in float64, row by row."""
    for k in range(rows.shape[0]):
        factor, shift = factors[k], shifts[k]
        for j in range(rows.shape[1]):
            out[k, j] = np.float64(rows[k, j]) * factor - shift * mean[j]


# Products of float64 weights with rows as they count, which are never stored, for a few outputs.
#
# BLAS is slow where one side of a matrix is as short as the number of classes, and wants rows of
# float64.  Here rows stay as they are kept: a few of their columns at a time are converted to what
# counts, entry by entry as `noisy_descent` does and rounded alike, into a buffer that a processor's
# first cache holds.  Every product is float64, and every number that comes out is a sum of such
# products, in some order, fused or not: that is all that `arithmetic.step_errors` asks for.
#
# **Layout.** As in `compiled.envelope`, loops take several columns at once if all numbers of a tile
# lie at distances that are constants: `_COLUMNS` from one row of a tile to the next, which is no
# power of two, so that the rows of a tile do not compete for the same lines of a cache.


def thin_outputs(
    rows: NDArray[Any],
    factors: Array,
    shifts: Array | None,
    mean: Array | None,
    weights: Array,
    constants: Array,
) -> Array:
    """The products of each of the weights with rows, one column a row, and its constant.

    Rows count as factors * rows, less shifts * mean if there is a mean.
    """
    found = np.empty((len(weights), len(rows)))
    found[...] = constants[:, np.newaxis]
    shifts, mean = _or_empty(shifts, mean)
    tile, weight_tile = _tiles(len(weights))
    _outputs(rows, factors, shifts, mean, weights, found, tile, weight_tile)
    return found


def sums(
    rows: NDArray[Any],
    factors: Array,
    shifts: Array | None,
    mean: Array | None,
    residual: Array,
    out: Array,
) -> None:
    """The sums of rows as they count, weighed by each residual, into the first columns of `out`."""
    shifts, mean = _or_empty(shifts, mean)
    tile, sum_tile = _tiles(len(residual))
    _sums(rows, factors, shifts, mean, residual, out, tile, sum_tile)


def _or_empty(shifts: Array | None, mean: Array | None) -> tuple[Array, Array]:
    return (_NONE, _NONE) if shifts is None or mean is None else (shifts, mean)


def _tiles(outputs: int) -> tuple[Array, Array]:
    """Room for the rows of a tile and for as many outputs, all 0, at the beginnings of lines."""
    rows = int(_ROWS * _COLUMNS)
    size = rows + outputs * int(_COLUMNS)
    memory = np.zeros(size + _LINE)
    # Many times as fast as `memory.ctypes`.
    first = -(memory.__array_interface__["data"][0] // memory.itemsize) % _LINE
    return memory[first : first + rows], memory[first + rows : first + size]


@njit(**STEP_BY_STEP)
def _converted(
    rows: NDArray[Any], factors: Array, shifts: Array, mean: Array,
    first: int, start: int, wide: int, tile: Array,
) -> None:  # fmt: skip
    """Some columns of some rows, as they count, into the tile; 0 beyond the last column."""
    begin, end = _index(start), min(_index(start + wide), _index(rows.shape[1]))
    for r in range(min(_ROWS, _index(rows.shape[0] - first))):
        k, at = _index(first) + r, r * _COLUMNS
        factor = factors[k]
        if mean.size:
            shift = shifts[k]
            for j in range(_index(0), end - begin):
                tile[at + j] = np.float64(rows[k, begin + j]) * factor - shift * mean[begin + j]
        else:
            for j in range(_index(0), end - begin):
                tile[at + j] = np.float64(rows[k, begin + j]) * factor
        for j in range(end - begin, _index(wide)):
            tile[at + j] = 0.0


@njit(**STEP_BY_STEP)
def _width(columns: int) -> int:
    """The number of columns to take at a time, such that all parts are about equally wide."""
    parts = max(-(-columns // int(_COLUMNS)), 1)
    return max(-(-columns // (parts * _LINE)), 1) * _LINE


@njit(**STEP_BY_STEP)
def _outputs(
    rows: NDArray[Any], factors: Array, shifts: Array, mean: Array, weights: Array,
    out: Array, tile: Array, weight_tile: Array,
) -> None:  # fmt: skip
    count, columns = rows.shape
    classes, wide = _index(weights.shape[0]), _width(columns)
    found = np.empty(_ROWS * _OUTPUTS)
    for start in range(0, columns, wide):
        end = min(wide, columns - start)
        weight_tile[:] = 0.0
        for i in range(weights.shape[0]):
            weight_tile[i * _COLUMNS : i * _COLUMNS + end] = weights[i, start : start + end]
        for first in range(0, count, _ROWS):
            _converted(rows, factors, shifts, mean, first, start, wide, tile)
            several = classes // _OUTPUTS * _OUTPUTS
            for i in range(_index(0), several, _OUTPUTS):
                _dots(tile, weight_tile, i * _COLUMNS, _index(wide), found)
                for r in range(min(_ROWS, _index(count - first))):
                    for c in range(_OUTPUTS):
                        out[i + c, _index(first) + r] += found[r * _OUTPUTS + c]
            for i in range(several, classes):
                _dots_with_one(tile, weight_tile, i * _COLUMNS, _index(wide), found)
                for r in range(min(_ROWS, _index(count - first))):
                    out[i, _index(first) + r] += found[r]


@njit(**_ANY_ORDER)
def _dots(tile: Array, weights: Array, at: int, wide: int, out: Array) -> None:
    """The products of four rows with five outputs' weights."""
    a00 = a01 = a02 = a03 = a04 = 0.0
    a10 = a11 = a12 = a13 = a14 = 0.0
    a20 = a21 = a22 = a23 = a24 = 0.0
    a30 = a31 = a32 = a33 = a34 = 0.0
    for j in range(_index(0), wide):
        w0, w1, w2 = weights[at + j], weights[at + _1 + j], weights[at + _2 + j]
        w3, w4 = weights[at + _3 + j], weights[at + _4 + j]
        x0, x1, x2, x3 = tile[j], tile[_1 + j], tile[_2 + j], tile[_3 + j]
        a00, a01, a02 = a00 + x0 * w0, a01 + x0 * w1, a02 + x0 * w2
        a03, a04 = a03 + x0 * w3, a04 + x0 * w4
        a10, a11, a12 = a10 + x1 * w0, a11 + x1 * w1, a12 + x1 * w2
        a13, a14 = a13 + x1 * w3, a14 + x1 * w4
        a20, a21, a22 = a20 + x2 * w0, a21 + x2 * w1, a22 + x2 * w2
        a23, a24 = a23 + x2 * w3, a24 + x2 * w4
        a30, a31, a32 = a30 + x3 * w0, a31 + x3 * w1, a32 + x3 * w2
        a33, a34 = a33 + x3 * w3, a34 + x3 * w4
    out[0], out[1], out[2], out[3], out[4] = a00, a01, a02, a03, a04
    out[5], out[6], out[7], out[8], out[9] = a10, a11, a12, a13, a14
    out[10], out[11], out[12], out[13], out[14] = a20, a21, a22, a23, a24
    out[15], out[16], out[17], out[18], out[19] = a30, a31, a32, a33, a34


@njit(**_ANY_ORDER)
def _dots_with_one(tile: Array, weights: Array, at: int, wide: int, out: Array) -> None:
    """The products of four rows with one output's weights."""
    a0 = a1 = a2 = a3 = 0.0
    for j in range(_index(0), wide):
        w = weights[at + j]
        a0, a1 = a0 + tile[j] * w, a1 + tile[_1 + j] * w
        a2, a3 = a2 + tile[_2 + j] * w, a3 + tile[_3 + j] * w
    out[0], out[1], out[2], out[3] = a0, a1, a2, a3


@njit(**STEP_BY_STEP)
def _sums(
    rows: NDArray[Any], factors: Array, shifts: Array, mean: Array, residual: Array,
    out: Array, tile: Array, sum_tile: Array,
) -> None:  # fmt: skip
    count, columns = rows.shape
    classes, wide = _index(residual.shape[0]), _width(columns)
    weights = np.zeros(_ROWS * _OUTPUTS)
    for start in range(0, columns, wide):
        end = min(wide, columns - start)
        sum_tile[:] = 0.0
        for first in range(0, count, _ROWS):
            _converted(rows, factors, shifts, mean, first, start, wide, tile)
            several = classes // _OUTPUTS * _OUTPUTS
            if first + int(_ROWS) > count:
                weights[:] = 0.0  # of rows that there are none of
            for i in range(_index(0), several, _OUTPUTS):
                for r in range(min(_ROWS, _index(count - first))):
                    for c in range(_OUTPUTS):
                        weights[r * _OUTPUTS + c] = residual[i + c, _index(first) + r]
                _add(tile, sum_tile, i * _COLUMNS, _index(wide), weights)
            for i in range(several, classes):
                for r in range(min(_ROWS, _index(count - first))):
                    weights[r * _OUTPUTS] = residual[i, _index(first) + r]
                _add_to_one(tile, sum_tile, i * _COLUMNS, _index(wide), weights)
        for i in range(residual.shape[0]):
            out[i, start : start + end] = sum_tile[i * _COLUMNS : i * _COLUMNS + end]


@njit(**COMPILED)
def _add(tile: Array, sums: Array, at: int, wide: int, weights: Array) -> None:
    """Add four rows, weighed, to five outputs' sums."""
    r00, r01, r02, r03, r04 = weights[0], weights[1], weights[2], weights[3], weights[4]
    r10, r11, r12, r13, r14 = weights[5], weights[6], weights[7], weights[8], weights[9]
    r20, r21, r22, r23, r24 = weights[10], weights[11], weights[12], weights[13], weights[14]
    r30, r31, r32, r33, r34 = weights[15], weights[16], weights[17], weights[18], weights[19]
    for j in range(_index(0), wide):
        x0, x1, x2, x3 = tile[j], tile[_1 + j], tile[_2 + j], tile[_3 + j]
        k = at + j
        sums[k] = sums[k] + r00 * x0 + r10 * x1 + r20 * x2 + r30 * x3
        sums[k + _1] = sums[k + _1] + r01 * x0 + r11 * x1 + r21 * x2 + r31 * x3
        sums[k + _2] = sums[k + _2] + r02 * x0 + r12 * x1 + r22 * x2 + r32 * x3
        sums[k + _3] = sums[k + _3] + r03 * x0 + r13 * x1 + r23 * x2 + r33 * x3
        sums[k + _4] = sums[k + _4] + r04 * x0 + r14 * x1 + r24 * x2 + r34 * x3


@njit(**COMPILED)
def _add_to_one(tile: Array, sums: Array, at: int, wide: int, weights: Array) -> None:
    """Add four rows, weighed, to one output's sum."""
    r0, r1, r2, r3 = weights[0], weights[5], weights[10], weights[15]
    for j in range(_index(0), wide):
        x0, x1, x2, x3 = tile[j], tile[_1 + j], tile[_2 + j], tile[_3 + j]
        sums[at + j] = sums[at + j] + r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3


# Exponential and logarithm as compiled loops can take them several at a time.
#
# Those of the C library would be called once for each number.  Both are within 4e-16 of the true
# value, relatively; nan stays nan, and so does what has no logarithm.


@intrinsic
def _bits(_: Any, x: Any) -> Any:
    return types.int64(types.float64), lambda _, builder, __, taken: builder.bitcast(
        taken[0], ir.IntType(64)
    )


@intrinsic
def _number(_: Any, bits: Any) -> Any:
    return types.float64(types.int64), lambda _, builder, __, taken: builder.bitcast(
        taken[0], ir.DoubleType()
    )


@njit(**COMPILED)
def exp(x: float) -> float:
    """The exponential of x, which is at most 700; 0 below -700."""
    # 2^k e^r with |r| at most log(2)/2.
    y = _LEAST_EXPONENT if x < _LEAST_EXPONENT else x
    k_and_more = y * _PER_LOG_2 + _WHOLE_SHIFT
    k = k_and_more - _WHOLE_SHIFT
    r = (y - k * _LOG_2) - k * _LOG_2_REST
    q = ((_E13 * r + _E12) * r + _E11) * r + _E10
    q = (((q * r + _E9) * r + _E8) * r + _E7) * r + _E6
    q = (((q * r + _E5) * r + _E4) * r + _E3) * r + _E2
    power = _number((_bits(k_and_more) + _BIAS) << _MANTISSA)
    found = (1.0 + (r + r * r * q)) * power
    return 0.0 if x < _LEAST_EXPONENT else found


@njit(**COMPILED)
def log(x: float) -> float:
    """Nan but for positive numbers, finite and of full precision."""
    # x = 2^k y with y about 1, and log y = 2 artanh((y - 1)/(y + 1)).
    above = ((_bits(x) - _ROOT_OF_HALF_BITS) >> _MANTISSA) << _MANTISSA
    y = _number(_bits(x) - above)
    k = _number(_WHOLE_BITS + (above >> _MANTISSA)) - _WHOLE_SHIFT
    t = (y - 1.0) / (y + 1.0)
    z = t * t
    q = (((1 / 23 * z + 1 / 21) * z + 1 / 19) * z + 1 / 17) * z + 1 / 15
    q = (((q * z + 1 / 13) * z + 1 / 11) * z + 1 / 9) * z + 1 / 7
    q = (q * z + 1 / 5) * z + 1 / 3
    found = k * _LOG_2 + (2.0 * t + (2.0 * t * z * q + k * _LOG_2_REST))
    return found if _LEAST_NORMAL <= x < np.inf else np.nan


@njit(**COMPILED)
def rough_log(x: float) -> float:
    """The logarithm to within about 2e-5."""
    above = ((_bits(x) - _ROOT_OF_HALF_BITS) >> _MANTISSA) << _MANTISSA
    y = _number(_bits(x) - above)
    k = _number(_WHOLE_BITS + (above >> _MANTISSA)) - _WHOLE_SHIFT
    t = (y - 1.0) / (y + 1.0)
    z = t * t
    found = k * (_LOG_2 + _LOG_2_REST) + 2.0 * t * ((1 / 5 * z + 1 / 3) * z + 1.0)
    return found if _LEAST_NORMAL <= x < np.inf else np.nan
