"""Exponential and logarithm as compiled loops can take them several at a time.

Those of the C library would be called once for each number.  Both are within 4e-16 of the true
value, relatively; nan stays nan, and so does what has no logarithm.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Fused products are more exact, never less.  Any other liberty would undo the reductions below.
COMPILED: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "cache": True}
# Without them, for what is to be the same to the bit whether Numba is there or not.
STEP_BY_STEP = COMPILED | {"fastmath": False}

_WHOLE = 1.5 * 2.0**52  # added to a number, leaves it rounded in the lowest bits
_WHOLE_BITS = 0x4338 << 48
_BIAS = 1023
_MANTISSA = 52
_PER_LOG_2 = 1.0 / math.log(2.0)
_LOG_2 = float.fromhex("0x1.62e42feep-1")  # so short that multiples are exact
_LOG_2_REST = float.fromhex("0x1.a39ef35793c76p-33")
_VANISHES = -700.0
_ROOT_OF_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST = 2.0**-1022
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (
    1.0 / math.factorial(k) for k in range(2, 14)
)


@intrinsic
def _bits(_: Any, x: Any) -> Any:
    return types.int64(types.float64), lambda _, builder, __, taken: builder.bitcast(
        taken[0], ir.IntType(64)
    )


@intrinsic
def _number(_: Any, bits: Any) -> Any:
    return types.float64(types.int64), lambda _, builder, __, taken: builder.bitcast(
        taken[0], ir.DoubleType()
    )


@njit(**COMPILED)
def exp(x: float) -> float:
    """The exponential of x, which is at most 700; 0 below -700."""
    # 2^k e^r with |r| at most log(2)/2.
    y = _VANISHES if x < _VANISHES else x
    k_and_more = y * _PER_LOG_2 + _WHOLE
    k = k_and_more - _WHOLE
    r = (y - k * _LOG_2) - k * _LOG_2_REST
    q = ((_E13 * r + _E12) * r + _E11) * r + _E10
    q = (((q * r + _E9) * r + _E8) * r + _E7) * r + _E6
    q = (((q * r + _E5) * r + _E4) * r + _E3) * r + _E2
    power = _number((_bits(k_and_more) + _BIAS) << _MANTISSA)
    found = (1.0 + (r + r * r * q)) * power
    return 0.0 if x < _VANISHES else found


@njit(**COMPILED)
def log(x: float) -> float:
    """Nan but for positive numbers, finite and of full precision."""
    # x = 2^k y with y about 1, and log y = 2 artanh((y - 1)/(y + 1)).
    above = ((_bits(x) - _ROOT_OF_HALF_BITS) >> _MANTISSA) << _MANTISSA
    y = _number(_bits(x) - above)
    k = _number(_WHOLE_BITS + (above >> _MANTISSA)) - _WHOLE
    t = (y - 1.0) / (y + 1.0)
    z = t * t
    q = (((1 / 23 * z + 1 / 21) * z + 1 / 19) * z + 1 / 17) * z + 1 / 15
    q = (((q * z + 1 / 13) * z + 1 / 11) * z + 1 / 9) * z + 1 / 7
    q = (q * z + 1 / 5) * z + 1 / 3
    found = k * _LOG_2 + (2.0 * t + (2.0 * t * z * q + k * _LOG_2_REST))
    return found if _LEAST <= x < np.inf else np.nan


@njit(**COMPILED)
def rough_log(x: float) -> float:
    """The logarithm to within about 2e-5."""
    above = ((_bits(x) - _ROOT_OF_HALF_BITS) >> _MANTISSA) << _MANTISSA
    y = _number(_bits(x) - above)
    k = _number(_WHOLE_BITS + (above >> _MANTISSA)) - _WHOLE
    t = (y - 1.0) / (y + 1.0)
    z = t * t
    found = k * (_LOG_2 + _LOG_2_REST) + 2.0 * t * ((1 / 5 * z + 1 / 3) * z + 1.0)
    return found if _LEAST <= x < np.inf else np.nan
