"""Running sums and products with few roundings.

A plain running sum of n terms carries up to n roundings; two levels of blocks of
sqrt(n) carry about 2 sqrt(n), so that a million steps cost 12 digits of slack less.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array


def roundings(length: int) -> int:
    """How many roundings `suffix_sums` or `suffix_products` put on any one entry."""
    return 2 * math.isqrt(max(length, 1)) + 3


def length_of(vector: NDArray[Any]) -> float:
    """Its Euclidean norm, on this thread: waking others costs more than they save."""
    return math.sqrt(float(np.square(vector).sum()))


def prefix_sums(terms: Array) -> Array:
    """Entry k is terms[0] + .. + terms[k]."""
    return _blocked(np.add, terms, np.empty(terms.size))


def suffix_sums(terms: Array) -> Array:
    """Entry k is terms[k] + .. + terms[-1]."""
    sums = np.empty(terms.size)
    _blocked(np.add, terms[::-1], sums[::-1])
    return sums


def suffix_products(factors: Array) -> Array:
    """Entry k is factors[k + 1] * .. * factors[-1]; the last entry is 1."""
    products = np.empty(factors.size)
    products[-1] = 1.0
    _blocked(np.multiply, factors[:0:-1], products[-2::-1])
    return products


def _blocked(combine: np.ufunc, terms: Array, result: Array) -> Array:
    width = math.isqrt(terms.size)
    if width <= 8:
        combine.accumulate(terms, out=result)
        return result
    whole = width * (terms.size // width)
    blocks = result[:whole].reshape(-1, width)
    combine.accumulate(terms[:whole].reshape(-1, width), axis=1, out=blocks)
    totals = combine.accumulate(blocks[:, -1])
    combine(blocks[1:], totals[:-1, None], out=blocks[1:])
    if whole < terms.size:
        combine.accumulate(terms[whole:], out=result[whole:])
        combine(result[whole:], totals[-1], out=result[whole:])
    return result
