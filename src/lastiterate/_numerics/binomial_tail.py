r"""A count that a binomial number exceeds with at most a given probability, however small.

**Bound.** For X binomial of n trials with probability p, and :math:`(n+1)p - 1 < k < n`,

.. math:: P(X \ge k) \le \frac{1}{1 - r}\sqrt{\frac{n}{2\pi k (n-k)}}\;
          e^{-n\,\mathrm{KL}(k/n \,\|\, p)}, \qquad r = \frac{(n-k)\,p}{(k+1)(1-p)} .

**Proof.** Stirling's formula with Robbins's remainders bounds P(X = k) by the root and the power.
The ratio of the probabilities of j + 1 and of j falls in j and is r at k, so that all from k on are
at most a geometric series.

Quantile functions of libraries invert the distribution function, which is 1 in floats where the
tail is below 1e-16.  Here everything is a logarithm, rounded towards a larger tail.
"""

import math

from lastiterate._numerics.rounding import ulps


def exceeded_with(probability: float, count: int, share: float) -> int:
    """A count that a binomial number of `count` trials exceeds with at most `probability`.

    At 0, `count` itself.

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
