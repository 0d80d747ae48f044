"""Rounding that errs on the side of less privacy.

Every certified number leaves the library through `at_least` (privacy losses: mu,
epsilon, delta, Renyi divergence) or `at_most` (trade-off values, where *lower* means
less private).  A formula evaluated in k floating-point operations is off by about k
ulps; widening by a stated number of ulps turns "close to the bound" into "not below
the bound".
"""

import math
import sys

ULP = sys.float_info.epsilon
TINY = sys.float_info.min


def at_least(value: float, *, ulps: float) -> float:
    """`value` >= 0 moved up by `ulps` units in the last place; nan is refused."""
    _refuse_nan(value)
    if value == 0.0 or value == math.inf:
        return value
    return math.nextafter(max(value * (1.0 + ulps * ULP), TINY), math.inf)


def at_most(value: float, *, ulps: float) -> float:
    """`value` >= 0 moved down by `ulps` units in the last place; nan is refused."""
    _refuse_nan(value)
    if value < TINY:
        return 0.0
    return value * (1.0 - ulps * ULP)


def _refuse_nan(value: float) -> None:
    if math.isnan(value):
        raise FloatingPointError("a certified value came out as nan")
