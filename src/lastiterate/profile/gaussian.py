r"""Gaussian differential privacy: no easier to tell apart than N(0, 1) and N(mu, 1)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfc, erfcx, ndtr, ndtri

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    TINY,
    Array,
    at_least,
    at_most,
    down,
    ulps,
    up,
)
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order

_ROOT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class GaussianProfile(PrivacyProfile):
    """The guarantee of mu-Gaussian differential privacy.

    Parameters
    ----------
    mu : float
        At least 0; inf promises nothing.

    Examples
    --------
    >>> profile = GaussianProfile(1.0)
    >>> round(profile.epsilon(1e-5), 4), round(profile.delta(1.0), 4), round(profile.renyi(2.0), 9)
    (4.3772, 0.1269, 1.0)
    """

    mu: float

    def __post_init__(self) -> None:
        value = _check.number("mu", self.mu, at_least=0.0, infinite=True)
        object.__setattr__(self, "mu", value)

    def deltas(self, epsilons: Array) -> Array:
        return gaussian_deltas(np.full(epsilons.shape, self.mu), epsilons)

    def _tradeoff_at(self, alpha: float) -> float:
        """Phi(Phi^-1(1 - alpha) - mu), rounded down."""
        if alpha == 0.0 or self.mu == math.inf:
            return 1.0 if alpha == 0.0 and self.mu < math.inf else 0.0
        if alpha == 1.0:
            return 0.0
        quantile = float(ndtri(alpha))
        x = -quantile - self.mu
        off = 8.0 * (abs(quantile) + self.mu + 1.0)  # ulps of x, absolutely
        return at_most(float(ndtr(x)), ulps=32.0 + (abs(x) + 1.0) * off)

    def renyi(self, order: float) -> float:
        alpha = check_order(order)
        return at_least(max(alpha * self.mu * self.mu / 2, TINY), ulps=2) if self.mu else 0.0

    def gdp(self) -> float:
        return self.mu


def gaussian_deltas(mus: Array, epsilons: Array) -> Array:
    r"""Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = a + mu, rounded up, elementwise.

    As printed the second term is inf * 0 for large epsilon.  Since e^epsilon is
    e^((b^2 - a^2)/2), both terms are e^(-a^2/2)/2 times a scaled error function;
    for a < 0, where that could overflow, the first is an error function itself.
    epsilon/mu is taken 4 ulps low, which moves delta up; what remains is a relative
    error of 16 ulps in each term and of a^2 ulps in the common factor.
    """
    mu = np.clip(mus, 1e-150, 1e150)  # below that more; above, delta is 1 all the same
    # Beyond 1e6 standard deviations every term is 0 and is reported as TINY.
    with np.errstate(over="ignore"):
        ratio = down(np.minimum(epsilons / mu, 1e6 + mu), ulps(4))
    a, b = ratio - mu / 2, ratio + mu / 2
    common = 0.5 * np.exp(-np.minimum(0.5 * a * a, 750.0))
    first = np.where(
        a < 0.0, 0.5 * erfc(a * _ROOT_HALF), common * erfcx(np.maximum(a, 0.0) * _ROOT_HALF)
    )
    second = common * erfcx(b * _ROOT_HALF)
    difference = np.maximum(first - second, 0.0)
    factor = ulps(np.minimum(2 * a * a + 16, 3200.0))
    error = difference * factor + (first + second) * ulps(16)
    error += np.where(a < 0.0, second * factor, 0.0)
    deltas = np.clip(difference + error, TINY, 1.0)
    return np.where(mus == 0.0, 0.0, np.where(mus == np.inf, 1.0, deltas))


def deltas_on_both_sides(mus: Array, epsilons: Array) -> Array:
    """delta of each mu at each epsilon, which may be negative; rounded up."""
    away = np.abs(epsilons)
    curve = gaussian_deltas(mus, away)
    return np.where(epsilons < 0.0, _mirrored(curve, away), curve)


def deltas_on_grid(mus: Array, cell: float, first: int, last: int) -> Array:
    """delta of every mu at the multiples of a cell from first <= 0 to last >= 0; rounded up."""
    away = cell * np.arange(max(-first, last) + 1, dtype=np.float64)
    shape = (mus.size, away.size)
    curve = gaussian_deltas(np.broadcast_to(mus[:, None], shape), np.broadcast_to(away, shape))
    below = _mirrored(curve[:, 1 : 1 - first], away[1 : 1 - first])
    return np.concatenate([below[:, ::-1], curve[:, : last + 1]], axis=1)


def _mirrored(curve: Array, away: Array) -> Array:
    """delta(-t) = 1 - e^-t (1 - delta(t))."""
    return np.minimum(up(-np.expm1(-away) + np.exp(-away) * curve, ulps(8)), 1.0)


class SubsampledGaussian(PrivacyProfile):
    """A Gaussian mechanism on a batch that has the example with some probability.

    delta(t) = p delta_mu(log(1 + (e^t - 1)/p)) for t >= 0, in both directions: C_p(G(mu)) of Dong,
    Roth and Su 2022.

    >>> SubsampledGaussian(0.01, 1.0).delta(0.5) < 0.01
    True
    """

    def __init__(self, probability: float, ratio: float) -> None:
        self._probability, self._ratio = probability, ratio

    def deltas(self, epsilons: Array) -> Array:
        with np.errstate(over="ignore"):
            shifted = np.log1p(np.expm1(np.minimum(epsilons, 700.0)) / self._probability)
        shifted = down(np.minimum(shifted, 1e6), FEW_ROUNDINGS)
        deltas = gaussian_deltas(np.full(epsilons.shape, self._ratio), shifted)
        return np.minimum(up(self._probability * deltas, FEW_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        return math.inf

    def gdp(self) -> float:
        return math.inf
