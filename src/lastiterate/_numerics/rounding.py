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
"""

import math
import sys
from typing import overload

import numpy as np
from numpy.typing import DTypeLike

from lastiterate._numerics.arrays import Array

_ULP = sys.float_info.epsilon
TINY = sys.float_info.min

FEW_ROUNDINGS = 1e-15
THOUSANDS_OF_ROUNDINGS = 1e-12
TENS_OF_THOUSANDS_OF_ROUNDINGS = 1e-11
MILLIONS_OF_ROUNDINGS = 1e-9


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


def _refuse_nan(value: float) -> None:
    if math.isnan(value):
        raise FloatingPointError("a certified value came out as nan")
