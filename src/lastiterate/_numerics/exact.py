"""Products and differences without the rounding that would hide a sign."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_SPLITTER = 2.0**27 + 1.0


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """(p, e) with x y = p + e exactly (Dekker), barring over- and underflow."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def two_minus_product(x: Array, y: Array) -> Array:
    """2 - x y, rounded down: the sign is right even where x y is within an ulp of 2."""
    with np.errstate(over="ignore", invalid="ignore"):
        product, error = two_product(x, y)
    error = np.where(np.isfinite(error), error, 0.0)  # x or y beyond 1e300: 2 is negligible
    difference = 2.0 - product
    # 2 - p is exact for p in [1, 4] (Sterbenz); elsewhere nothing cancels.
    rounded = difference - error
    slack = np.where((product >= 1.0) & (product <= 4.0), 0.0, np.abs(difference) * 2.0**-51)
    below = np.nextafter(rounded - slack, -np.inf)
    return np.where((rounded == 0.0) & (error == 0.0), 0.0, below)


def _split(x: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high
