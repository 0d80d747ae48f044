"""Outputs from products with rows, and back, in one pass each, rounded as numpy does in several."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled.elementary import STEP_BY_STEP


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
