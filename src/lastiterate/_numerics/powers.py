"""Powers of c and sums of them, from 1 - c: c itself rounds to 1 once 1 - c < 1e-16.

Everything is written in log c, so for the powers of c^k give k log c.  A logarithm that is off by
an ulp is multiplied by the exponent: c^k is off by about k |log c| ulps, and beyond 750 of
these it has vanished.  `ulps_off` bounds that error, and that of a sum, with room to spare.

Beside them the length of a Fourier transform, and the tail of a binomial number.
"""

import math
from typing import overload

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray, ulps

_LARGEST_LOG = 709.0  # of a number that a float holds
_LARGEST_INVERSE_LOG = 300.0  # the square is still a number


def log_of(gap: float) -> float:
    """log c for c = 1 - gap >= 0; -inf for c = 0."""
    return math.log1p(-gap) if gap < 1.0 else -math.inf


def power(log_c: float, exponent: int) -> float:
    """c^exponent, within `ulps_off(exponent * log_c)`; inf where it overflows."""
    if exponent == 0 or log_c == 0.0:
        return 1.0
    log = exponent * log_c
    return math.exp(log) if log < _LARGEST_LOG else math.inf


def sum_of_powers(log_c: float, count: int, *, gap: float | None = None) -> float:
    """1 + c + .. + c^(count - 1), within `ulps_off(count * log_c)`; inf where it overflows.

    `gap` is 1 - c, where that is known at least as well as log c.
    """
    if count == 0 or math.isinf(log_c):
        return float(min(count, 1))
    if log_c == 0.0:
        return float(count)
    log = count * log_c
    if log >= _LARGEST_LOG:
        return math.inf if count > 1 else 1.0
    return -math.expm1(log) / (-math.expm1(log_c) if gap is None else gap)


def contraction_power(gap: float, exponent: int) -> float:
    """(1 - gap)^exponent, within some ulps."""
    return power(log_of(gap), exponent)


def geometric_sum(gap: float, count: int) -> float:
    """1 + c + .. + c^(count - 1) for c = 1 - gap, within some ulps; `count` for c = 1."""
    return sum_of_powers(log_of(gap), count, gap=gap)


def logs_of_powers(log_c: float, exponents: Array | IntArray) -> Array:
    """The logarithms of c^k for several k >= 0, with 0^0 = 1."""
    logs = np.zeros(exponents.shape)
    return np.multiply(exponents, log_c, out=logs, where=exponents > 0)


def sums_of_powers(log_c: float, counts: Array | IntArray, *, gap: float | None = None) -> Array:
    """1 + c + .. + c^(count - 1) for several counts >= 0 and c <= 1, as `sum_of_powers`."""
    if log_c == 0.0:
        return np.asarray(counts, dtype=np.float64)
    logs = logs_of_powers(log_c, counts)
    return np.asarray(-np.expm1(logs) / (-math.expm1(log_c) if gap is None else gap))


def inverse_power(log_c: float, exponent: int) -> float:
    """c^-exponent for 0 < c <= 1, within `ulps_off`, or less: it is cut at e^300."""
    return math.exp(min(-exponent * log_c, _LARGEST_INVERSE_LOG))


def sum_of_inverse_powers(log_c: float, count: int) -> float:
    """c^-1 + .. + c^-count for 0 < c <= 1, within `ulps_off`, or less: it is cut at e^300."""
    log = -count * log_c
    if log < 1e-12:
        return float(count)
    return math.expm1(min(log, _LARGEST_INVERSE_LOG)) / -math.expm1(log_c)


@overload
def ulps_off(log: float) -> float: ...
@overload
def ulps_off(log: Array) -> Array: ...
def ulps_off(log: float | Array) -> float | Array:
    """Ulps by which a power with this logarithm, or the sum of those before it, may be off."""
    return 16 + 8 * np.minimum(np.abs(log), 750.0)


def fast_length(least: int) -> int:
    """The first number from `least` on without prime factors above 5.

    Fourier transforms of such lengths are quick.  numpy has them, and is loaded already: scipy's
    take longer to load than to use.
    """
    best = 1 << max(least - 1, 0).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            rest = -(-least // threes)
            best = min(best, threes << max(rest - 1, 0).bit_length())
            threes *= 3
        fives *= 5
    return best


def exceeded_with(probability: float, count: int, share: float) -> int:
    r"""A count that a binomial number of `count` trials exceeds with at most `probability`.

    At 0, `count` itself.

    **Bound.** For X binomial of n trials with probability p, and :math:`(n+1)p - 1 < k < n`,

    .. math:: P(X \ge k) \le \frac{1}{1 - r}\sqrt{\frac{n}{2\pi k (n-k)}}\;
              e^{-n\,\mathrm{KL}(k/n \,\|\, p)}, \qquad r = \frac{(n-k)\,p}{(k+1)(1-p)} .

    **Proof.** Stirling's formula with Robbins's remainders bounds P(X = k) by the root and the
    power.  The ratio of the probabilities of j + 1 and of j falls in j and is r at k, so that all
    from k on are at most a geometric series.

    **Computed as** logarithms, rounded towards a larger tail: quantile functions of libraries
    invert the distribution function, which is 1 in floats where the tail is below 1e-16.

    >>> exceeded_with(1e-30, 1_000_000, 0.001)
    1383
    """
    if not probability > 0.0 or not share < 1.0:
        return count
    limit = math.log(probability) if probability < 1.0 else 0.0
    # The tail is known to be small enough from `high` + 1 on; none lies beyond `count`.
    low, high = min(math.ceil((count + 1) * share), count), count
    while low < high:
        middle = (low + high) // 2
        if _log_tail(middle + 1, count, share) <= limit:
            high = middle
        else:
            low = middle + 1
    return high


def _log_tail(least: int, count: int, share: float) -> float:
    """The logarithm of a bound on the probability of `least` or more, above the mean."""
    left = count - least
    own = least * (math.log(least / count) - math.log(share))
    other = left * (math.log(left / count) - math.log1p(-share)) if left else 0.0
    # Of the logarithms, of their arguments, and of the share, which is a rounded quotient.
    sizes = least * (2.0 - math.log(share) - math.log(least / count)) + 2.0 * count
    if left:
        sizes -= left * (math.log(left / count) + math.log1p(-share))
    exponent = own + other - ulps(8.0) * sizes
    if not left:
        return -exponent
    ratio = left * share / ((least + 1.0) * (1.0 - share))
    if not ratio < 1.0:
        return 0.0
    root = 0.5 * math.log(count / (2.0 * math.pi * least * left))
    return min(root - math.log1p(-ratio) + 1e-9 - exponent, 0.0)
