"""Rows mapped to [-1, 1] by public ranges and brought within a public bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import down, ulps_of
from lastiterate.train.norms import norm_factors
from lastiterate.train.rows import Rows


def rows_within(rows: Rows, bound: float, ranges: tuple[Array, Array] | None) -> Any:
    """The rows, mapped from their ranges if there are some, none longer than the bound."""
    if ranges is not None:
        low, high = ranges
        rows = np.clip((rows - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    factors = norm_factors(rows, bound)
    # Every entry of a scaled row is rounded, to the precision of the rows.
    long = factors < 1.0
    factors[long] = down(factors[long], ulps_of(rows.dtype, 1))
    if not isinstance(rows, np.ndarray):
        return rows.multiply(factors[:, np.newaxis]).tocsr().astype(rows.dtype)
    rows = rows.copy()
    rows[long] = rows[long] * factors[long, np.newaxis]
    return rows
