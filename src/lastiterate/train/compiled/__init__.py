"""Loops of the training that Numba compiles, where it is installed (`lastiterate[fast]`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.train.envelope import CERTIFIED
from lastiterate.train.noise import Order

Clip = Callable[[Array, Order, float], tuple[Array, Order]]

_ROUNDS = (3, 12)  # for nearly all, and for those they are too few for


@cache
def compiled_clip() -> Clip | None:
    """Clipped residuals, and the columns in which they are not certified; None without Numba."""
    try:
        from lastiterate.train.compiled.envelope import clip_residuals, softmax_residuals
    except ImportError:
        return None

    def clipped(u: Array, y: Order, c: float) -> tuple[Array, Order]:
        u, y = np.ascontiguousarray(u, np.float64), np.ascontiguousarray(y, np.intp)
        residual, left = np.empty(u.shape), np.empty(y.size, np.intp)
        left = left[: softmax_residuals(u, y, c, residual, left)]
        for rounds in _ROUNDS:
            if left.size:
                left = left[: clip_residuals(u, y, left, c, CERTIFIED, rounds, residual)]
        return residual, left

    return clipped
