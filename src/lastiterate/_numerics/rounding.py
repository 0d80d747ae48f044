"""Rounding that errs on the side of less privacy: the only slack in the package.

Every certified number leaves the library through `at_least` (privacy losses: mu,
epsilon, delta, Renyi divergence) or `at_most` (trade-off values, where *lower* means
less private).  A formula evaluated in k floating-point operations is off by about k
ulps; widening by a stated number of ulps turns "close to the bound" into "not below
the bound".

On the way there `up` and `down` move numbers and arrays by a relative amount: `ulps(k)`
where the roundings were counted, else one of these.

==============================  ======  =========================================================
name                            amount  covers
==============================  ======  =========================================================
FEW_ROUNDINGS                   1e-15   up to 4: a formula of as many operations
THOUSANDS_OF_ROUNDINGS          1e-12   plain sums of thousands of terms; powers e^x, |x| up to a
                                        thousand; formulas in functions good to a few ulps
TENS_OF_THOUSANDS_OF_ROUNDINGS  1e-11   the same, made of one another
MILLIONS_OF_ROUNDINGS           1e-9    plain sums over a million steps; recursions; functions
                                        of other libraries that state no error
==============================  ======  =========================================================

`minus_product` and what it serves take products without the rounding that would hide a sign.
Running sums and products have few roundings: a plain running sum of n terms carries up to n, two
levels of blocks of sqrt(n) carry about 2 sqrt(n), so that a million steps cost 12 digits of slack
less.  `Interval` holds arrays of intervals that surely contain the real numbers they stand for.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
_ULP = sys.float_info.epsilon
TINY = sys.float_info.min
FEW_ROUNDINGS = 1e-15
THOUSANDS_OF_ROUNDINGS = 1e-12
TENS_OF_THOUSANDS_OF_ROUNDINGS = 1e-11
MILLIONS_OF_ROUNDINGS = 1e-9
_SPLITTER = 2.0**27 + 1.0  # a double into halves of 26 bits


def at_least(value: float, *, ulps: float) -> float:
    """`value` >= 0 moved up by `ulps` units in the last place; nan is refused."""
    _refuse_nan(value)
    if value == 0.0 or value == math.inf:
        return value
    return math.nextafter(max(value * (1.0 + ulps * _ULP), TINY), math.inf)


def at_most(value: float, *, ulps: float) -> float:
    """`value` >= 0 moved down by `ulps` units in the last place; nan is refused."""
    _refuse_nan(value)
    if value < TINY:
        return 0.0
    return value * (1.0 - ulps * _ULP)


def _refuse_nan(value: float) -> None:
    if math.isnan(value):
        raise FloatingPointError("a certified value came out as nan")


@overload
def ulps(count: float) -> float: ...


@overload
def ulps(count: Array) -> Array: ...


def ulps(count: float | Array) -> float | Array:
    """This many units in the last place of 1, as a relative amount."""
    return count * _ULP


def ulps_of(dtype: DTypeLike, count: float) -> float:
    """This many units in the last place of 1 in this precision, as a relative amount."""
    return count * float(np.finfo(dtype).eps)


@overload
def up(value: float, relative: float) -> float: ...


@overload
def up(value: Array, relative: float | Array) -> Array: ...


def up(value: float | Array, relative: float | Array) -> float | Array:
    """`value` >= 0, moved up by this share of itself."""
    return value * (1.0 + relative)


@overload
def down(value: float, relative: float) -> float: ...


@overload
def down(value: Array, relative: float | Array) -> Array: ...


def down(value: float | Array, relative: float | Array) -> float | Array:
    """`value` >= 0, moved down by this share of itself."""
    return value * (1.0 - relative)


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """(p, e) with x y = p + e exactly (Dekker), barring over- and underflow."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    return product, error


def _split(x: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * x
    high = scaled - (scaled - x)
    return high, x - high


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


def roundings(length: int) -> int:
    """The most roundings that `suffix_sums` or `suffix_products` put on one entry."""
    return 2 * math.isqrt(max(length, 1)) + 3


def length_of(vector: NDArray[Any]) -> float:
    """Its Euclidean norm, on this thread: waking others costs more than they save."""
    return math.sqrt(float(np.square(vector).sum()))


def prefix_sums(terms: Array) -> Array:
    """Entry k is terms[0] + .. + terms[k]."""
    return _accumulate_in_blocks(np.add, terms, np.empty(terms.size))


def suffix_sums(terms: Array) -> Array:
    """Entry k is terms[k] + .. + terms[-1]."""
    sums = np.empty(terms.size)
    _accumulate_in_blocks(np.add, terms[::-1], sums[::-1])
    return sums


def suffix_products(factors: Array) -> Array:
    """Entry k is factors[k + 1] * .. * factors[-1]; the last entry is 1."""
    products = np.empty(factors.size)
    products[-1] = 1.0
    _accumulate_in_blocks(np.multiply, factors[:0:-1], products[-2::-1])
    return products


def _accumulate_in_blocks(combine: np.ufunc, terms: Array, result: Array) -> Array:
    """Running sums or products in `result`, by blocks and then within each."""
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


@dataclass(frozen=True, eq=False)
class Interval:
    """The reals between `low` and `high`, entry by entry.

    Every operation is rounded to the nearest float and then moved outwards by one, so that the
    result contains that of all reals inside its operands.
    """

    low: Array
    high: Array

    @classmethod
    def exact(cls, values: ArrayLike) -> Interval:
        """The intervals that hold just these floats."""
        array = np.asarray(values, dtype=np.float64)
        return cls(array, array)

    def __add__(self, other: Interval) -> Interval:
        return _widen(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return _widen(self.low - other.high, self.high - other.low)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        products = np.stack(
            np.broadcast_arrays(
                self.low * other.low,
                self.low * other.high,
                self.high * other.low,
                self.high * other.high,
            )
        )
        return _widen(products.min(axis=0), products.max(axis=0))

    def __getitem__(self, which: Any) -> Interval:
        return Interval(self.low[which], self.high[which])

    @property
    def is_not_negative(self) -> bool:
        """Whether no entry can be below 0; False where one is nan."""
        return bool(np.all(self.low >= 0.0))


def _widen(low: Array, high: Array) -> Interval:
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
