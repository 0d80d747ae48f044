"""What a published linear model says of rows, brought within its bounds as in training."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.train.centring import Centre
from lastiterate.train.norms import norm_factors, with_huge_rows_scaled
from lastiterate.train.rows import Rows


def linear_outputs(
    rows: Rows, coef: Array, intercept: Array, *, bound: float, centre: Centre | None
) -> Array:
    """One column for each output: `rows @ coef.T + intercept` for rows within the bounds."""
    scaled, factors = with_huge_rows_scaled(rows, norm_factors(rows, bound), bound=bound)
    outputs = np.asarray(scaled @ coef.T, dtype=np.float64) * factors[:, np.newaxis]
    if centre is None:
        return np.asarray(outputs + intercept)
    reaches = centre.reaches(rows, bound=bound)[:, np.newaxis]
    at_centre = centre.outputs(coef)
    return np.asarray((outputs - at_centre) * reaches + (intercept + at_centre))
