"""Clipped residuals of the logistic loss, several at a time."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled.elementary import COMPILED, exp


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
