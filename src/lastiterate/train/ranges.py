"""Rows mapped to [-1, 1] by public ranges and brought within a public bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.train.norms import norm_factors
from lastiterate.train.rows import Rows


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def rows_within(rows: Rows, bound: float, ranges: tuple[Array, Array] | None) -> Any:
    """The rows, mapped from their ranges if there are some, none longer than the bound.

    In float64: rounded to the precision of the rows, all would change with a row of another.
    """
    rows = rows.astype(np.float64)
    if ranges is not None:
        low, high = ranges
        rows = np.clip((rows - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    factors = norm_factors(rows, bound)
    if not isinstance(rows, np.ndarray):
        return rows.multiply(factors[:, np.newaxis]).tocsr()
    rows *= factors[:, np.newaxis]
    return rows
