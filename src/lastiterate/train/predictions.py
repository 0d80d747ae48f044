"""Outputs of a published linear model on rows that are brought within its bounds as in training."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.train.centring import Centre
from lastiterate.train.norms import SHORTEST, norm_factors, with_huge_rows_scaled
from lastiterate.train.rows import Rows


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def linear_outputs(
    rows: Rows, coef: Array, intercept: Array, *, bound: float, centre: Centre | None
) -> Array:
    """One column for each output: `rows @ coef.T + intercept` for rows within the bounds."""
    if isinstance(rows, np.ndarray):
        # A product is rounded as rows lie in memory, which one odd cell can decide for all of them.
        rows = np.ascontiguousarray(rows)
    reaches = None
    if centre is None:
        factors = norm_factors(rows, bound)
    else:
        factors, reaches = centre.factors_and_reaches(rows, bound=bound)
    outputs = np.asarray(rows @ coef.T, dtype=np.float64)
    # By themselves, so that the products of all other rows are those of the same memory.
    huge = np.flatnonzero(factors < SHORTEST)
    if huge.size:
        exact = rows[huge].astype(np.float64)
        scaled, factors[huge] = with_huge_rows_scaled(exact, factors[huge], bound=bound)
        # Each by itself: how many there are must not change how a product is rounded.
        outputs[huge] = np.vstack([scaled[one : one + 1] @ coef.T for one in range(huge.size)])
    outputs *= factors[:, np.newaxis]
    if centre is None or reaches is None:
        return np.asarray(outputs + intercept)
    at_centre = centre.outputs(coef)
    return np.asarray((outputs - at_centre) * reaches[:, np.newaxis] + (intercept + at_centre))
