"""Privacy of N(0, 1) against N(mu, 1), in multiprecision.

Literal: the textbook formulas, with enough digits that their cancellation does no harm.
Floats are taken as the exact binary numbers they are; every result is an mpf.
"""

from mpmath import mp, mpf

DIGITS = 60


def _exact(x):
    # mpf(x) rounds an mpf to the ambient precision, which the caller chose for other reasons.
    with mp.workdps(400):
        return mpf(x)


def _normal_cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _working_digits(mu, epsilon):
    # The two terms agree to about mu / x, and exp(-x^2/2) loses the digits of x^2.
    x = epsilon / mu + mu
    return DIGITS + 20 + int(6 * mp.log10(2 + x + epsilon + 1 / mu))


def delta_of_gaussian(mu, epsilon):
    """delta(epsilon) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), for any real epsilon."""
    mu, epsilon = _exact(mu), _exact(epsilon)
    if mu == 0:
        with mp.workdps(DIGITS):
            return max(mpf(0), -mp.expm1(epsilon))
    with mp.workdps(_working_digits(mu, abs(epsilon))):
        upper = _normal_cdf(-epsilon / mu + mu / 2)
        return upper - mp.exp(epsilon) * _normal_cdf(-epsilon / mu - mu / 2)


def log_delta_of_gaussian(mu, epsilon):
    """log delta(epsilon); near delta = 1 it keeps the digits of 1 - delta."""
    mu, epsilon = _exact(mu), _exact(epsilon)
    if mu == 0:
        delta = delta_of_gaussian(mu, epsilon)
        with mp.workdps(DIGITS):
            return mp.log(delta) if delta > 0 else -mp.inf
    with mp.workdps(_working_digits(mu, abs(epsilon))):
        kept = _normal_cdf(epsilon / mu - mu / 2)
        complement = kept + mp.exp(epsilon) * _normal_cdf(-epsilon / mu - mu / 2)
        if complement < 0.5:
            return mp.log1p(-complement)
        return mp.log(delta_of_gaussian(mu, epsilon))


def epsilon_of_gaussian(mu, delta):
    """The least epsilon >= 0 with delta(epsilon) <= delta, by bisection to 50 digits."""
    mu, delta = _exact(mu), _exact(delta)
    if delta <= 0:
        return mp.inf if mu > 0 else mpf(0)
    if delta_of_gaussian(mu, 0) <= delta:
        return mpf(0)
    with mp.workdps(DIGITS):
        low, high = mpf(0), mu
        while delta_of_gaussian(mu, high) > delta:
            low, high = high, 2 * high
        while high - low > mpf(10) ** -50 * high:
            middle = (low + high) / 2
            if delta_of_gaussian(mu, middle) > delta:
                low = middle
            else:
                high = middle
        return high


def _upper_quantile(probability):
    """z with Phi(-z) = probability: bisection, then Newton's method, whose end is checked."""
    if probability > 0.5:
        return -_upper_quantile(1 - probability)
    low, high = mpf(0), mp.sqrt(-2 * mp.log(probability))
    while high - low > mpf(10) ** -6:
        middle = (low + high) / 2
        if _normal_cdf(-middle) > probability:
            low = middle
        else:
            high = middle
    z = (low + high) / 2
    for _ in range(7):
        z += (_normal_cdf(-z) - probability) / mp.npdf(z)
    error = mpf(10) ** -DIGITS
    assert _normal_cdf(-(z - error)) > probability > _normal_cdf(-(z + error))
    return z


def tradeoff_of_gaussian(mu, false_positive_rate):
    """The least false negative rate: Phi(Phi^{-1}(1 - false_positive_rate) - mu)."""
    with mp.workdps(2 * DIGITS):
        mu, rate = mpf(mu), mpf(false_positive_rate)
        if rate in (0, 1):
            return 1 - rate
        return _normal_cdf(_upper_quantile(rate) - mu)


def renyi_of_gaussian(mu, order):
    """Renyi divergence of the given order: order mu^2 / 2."""
    with mp.workdps(DIGITS):
        return mpf(order) * mpf(mu) ** 2 / 2
