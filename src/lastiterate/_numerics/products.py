"""Products and differences without the rounding that would hide a sign."""

import numpy as np

from lastiterate._numerics.arrays import Array

_SPLITTER = 2.0**27 + 1.0


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """(p, e) with x y = p + e exactly (Dekker), barring over- and underflow."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def minus_product(constant: float, x: Array, y: Array) -> Array:
    """constant - x y, for 1 or 2 and x, y >= 0, within an ulp of itself: the sign is right."""
    x_mantissa, x_exponent = np.frexp(x)
    y_mantissa, y_exponent = np.frexp(y)
    product, error = two_product(x_mantissa, y_mantissa)
    with np.errstate(over="ignore", under="ignore"):
        product = np.ldexp(product, x_exponent + y_exponent)
        error = np.ldexp(error, x_exponent + y_exponent)
    # The difference is exact where it could cancel (Sterbenz), and then one rounding follows.
    return np.asarray((constant - product) - np.where(np.isfinite(product), error, 0.0))


def two_minus_product(x: Array, y: Array) -> Array:
    """2 - x y, rounded down: the sign is right even where x y is within an ulp of 2."""
    difference = minus_product(2.0, x, y)
    below = np.nextafter(difference - np.abs(difference) * 2.0**-51, -np.inf)
    return np.where(difference == 0.0, 0.0, below)


def distance_of_product_to_one(x: Array, y: Array) -> Array:
    """|1 - x y|, rounded up."""
    difference = np.abs(minus_product(1.0, x, y))
    return np.where(difference == 0.0, 0.0, np.nextafter(difference * (1.0 + 2.0**-51), np.inf))


def _split(x: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high
