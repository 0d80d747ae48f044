r"""Renyi differential privacy: a divergence for every order.

From one order to (epsilon, delta), the less of two.  Balle, Barthe, Gaboardi, Hsu and Sato 2020,
Theorem 21: :math:`\delta = e^{(\alpha-1)(R_\alpha - \varepsilon)} \frac1\alpha
(1 - \frac1\alpha)^{\alpha-1}`, which is below Mironov's by its last two factors.  Asoodeh, Liao,
Calmon, Kosut and Sankar 2021, Lemma 1: :math:`\delta = (e^{(\alpha-1)R_\alpha} - 1) /
(\alpha (e^{(\alpha-1)\varepsilon} - 1))`, since :math:`\phi(t) = t^\alpha - 1 - \alpha(t - 1)` is
convex and at least 0, hence at least :math:`\phi'(e^\varepsilon)(t - e^\varepsilon)^+`.

Zero-concentrated and pure differential privacy are here, too: they are known by their divergences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import erfinv, log_ndtr, ndtri_exp

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    at_least,
    down,
    ulps,
    up,
)
from lastiterate.profile.profile import PrivacyProfile, check_order

_ORDERS = 1.0 + np.geomspace(1e-3, 1e6, 400)
_MANY_ORDERS = 1.0 + np.geomspace(1e-3, 1e6, 4000)


class RenyiProfile(PrivacyProfile):
    """A curve of Renyi divergences, valid at every order it is finite at.

    `divergence` is a function of the order, or with `at_once` of an array of orders; that is
    called once, for many of them.
    """

    def __init__(self, divergence: Callable[..., Any], *, at_once: bool = False) -> None:
        if not callable(divergence):
            raise TypeError(f"divergence must be a function of the order; got {divergence!r}.")
        self._divergence, self._at_once = divergence, at_once
        self._orders = _MANY_ORDERS if at_once else _ORDERS

    @cached_property
    def _at_orders(self) -> Array:
        return self._divergences(self._orders)

    def renyi(self, order: float) -> float:
        return float(self._divergences(np.array([check_order(order)]))[0])

    def gdp(self) -> float:
        return 0.0 if np.all(self._at_orders == 0.0) else math.inf

    def deltas(self, epsilons: Array) -> Array:
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def _divergences(self, orders: Array) -> Array:
        if self._at_once:
            values = np.asarray(self._divergence(orders), dtype=np.float64)
        else:
            values = np.array([float(self._divergence(float(order))) for order in orders])
        return np.where(values >= 0.0, values, np.inf)  # nan and negative values promise nothing

    def _delta(self, epsilon: float) -> float:
        logs = log_deltas(self._at_orders, self._orders, epsilon)
        near = int(np.argmin(logs))
        best = float(logs[near])
        if not self._at_once:
            orders = np.linspace(_ORDERS[max(near - 1, 0)], _ORDERS[min(near + 1, 399)], 60)
            best = min(best, float(log_deltas(self._divergences(orders), orders, epsilon).min()))
        return rounded_up_exp(best)


@dataclass(frozen=True)
class ZCDPProfile(PrivacyProfile):
    """rho-zCDP: divergence at most rho times the order, for every order above 1."""

    rho: float

    def __post_init__(self) -> None:
        value = _check.number("rho", self.rho, at_least=0.0, infinite=True)
        object.__setattr__(self, "rho", value)

    def renyi(self, order: float) -> float:
        alpha = check_order(order)
        return at_least(alpha * self.rho, ulps=1) if self.rho else 0.0

    def gdp(self) -> float:
        return 0.0 if self.rho == 0.0 else math.inf

    def deltas(self, epsilons: Array) -> Array:
        if self.rho == 0.0:
            return np.zeros(epsilons.shape)
        if self.rho == math.inf:
            return np.ones(epsilons.shape)
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def _delta(self, epsilon: float) -> float:
        excess = (epsilon - self.rho) / (2.0 * self.rho)
        if not excess > 0.0:
            return 1.0
        if excess > 1e100:
            return TINY
        near = 1.0 + excess
        orders = 1.0 + excess * np.linspace(0.05, 2.0, 400)
        best = float(log_deltas(self.rho * orders, orders, epsilon).min())
        # Bun and Steinke's factor on exp(-(epsilon - rho)^2 / (4 rho)).
        factor = min(
            1.0,
            math.sqrt(math.pi * self.rho),
            1.0 / near,
            2.0 / (near + math.sqrt(near * near + 4.0 / (math.pi * self.rho))),
        )
        return rounded_up_exp(min(best, -excess * excess * self.rho + math.log(factor)))


@dataclass(frozen=True)
class PureProfile(PrivacyProfile):
    """(limit, 0)-DP: no event changes its probability by more than a factor of e^limit.

    Its worst case is randomised response.

    >>> PureProfile(1.0).epsilon(0.0), round(PureProfile(1.0).delta(0.5), 4)
    (1.0, 0.2876)
    """

    limit: float

    def __post_init__(self) -> None:
        value = _check.number("limit", self.limit, at_least=0.0, infinite=True)
        object.__setattr__(self, "limit", value)

    def deltas(self, epsilons: Array) -> Array:
        if self.limit == math.inf:
            return np.ones(epsilons.shape)
        # (e^limit - e^epsilon)/(1 + e^limit).
        short = -np.expm1(np.minimum(epsilons - self.limit, 0.0)) / (1.0 + math.exp(-self.limit))
        return np.where(epsilons >= self.limit, 0.0, np.clip(up(short, ulps(8)), TINY, 1.0))

    def epsilon(self, delta: float) -> float:
        return min(super().epsilon(delta), self.limit)

    def renyi(self, order: float) -> float:
        alpha, e = check_order(order), self.limit
        if alpha == math.inf or e in (0.0, math.inf):
            return e
        if alpha == 1.0:
            return min(e, at_least(e * math.tanh(e / 2.0), ulps=8))
        # log of (e^{alpha e} + e^{(1 - alpha) e})/(1 + e^e), over alpha - 1.
        log = (
            (alpha - 1.0) * e
            + math.log1p(math.exp(-(2 * alpha - 1) * e))
            - math.log1p(math.exp(-e))
        )
        slack = FEW_ROUNDINGS * (1.0 + alpha * e)
        return min(e, max((log + slack) / (alpha - 1.0), TINY))

    def gdp(self) -> float:
        """The mu at which mu-GDP's trade-off meets randomised response's."""
        if self.limit in (0.0, math.inf):
            return self.limit
        # Phi(-mu/2) = 1/(1 + e^limit); near 1/2, where that cancels, as an error function.
        if self.limit < 1.0:
            mu = math.sqrt(8.0) * float(erfinv(math.tanh(self.limit / 2.0)))
        else:
            mu = -2.0 * float(ndtri_exp(-np.logaddexp(0.0, self.limit)))
        if not log_ndtr(-mu / 2) < 0.0:
            return math.inf
        return at_least(up(max(mu, TINY), THOUSANDS_OF_ROUNDINGS), ulps=1)


def averaged(weights: Array, divergences: Array, order: float) -> float:
    """log of the average of e^((order - 1) divergence), over order - 1: joint convexity.

    It is computed as the largest divergence less what the others fall short of it, so that nothing
    overflows, and nothing cancels for orders near 1; missing weight counts as the largest.  It is
    rounded up but for the last difference.
    """
    top, less = float(divergences.max()), order - 1.0
    if less == 0.0:
        short = float(weights @ (top - divergences))
    else:
        short = -math.log1p(float(weights @ np.expm1(less * (divergences - top)))) / less
    # It is a sum of terms of one sign: only its last digits are in doubt.
    return max(top - max(down(short, ulps(weights.size + 16)), 0.0), 0.0)


def averaged_at_orders(weights: Array, rates: Array, orders: Array) -> Array:
    """The result of `averaged` for divergences rate * order, at many orders at once; rounded up."""
    top, less = float(rates.max()), orders - 1.0
    result = np.empty(orders.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        for block in np.array_split(np.arange(orders.size), 1 + rates.size * orders.size // 10**6):
            exponents = np.outer(less[block] * orders[block], rates - top)
            fallen = np.log1p(np.maximum(np.expm1(exponents) @ weights, -1.0))
            at_one = (rates - top) @ weights
            result[block] = np.where(less[block] > 0.0, fallen / less[block], at_one)
        largest = orders * top
        # The difference may be far below the largest, whose rounding it has in it.
        return np.asarray(
            up(largest + np.minimum(result, 0.0), THOUSANDS_OF_ROUNDINGS) + 1e-14 * largest
        )


def log_deltas(divergences: Array, orders: Array, epsilon: float) -> Array:
    """log delta from each order alone, by the better of the two."""
    if math.isinf(epsilon):
        return np.full(orders.shape, -math.inf)
    less = orders - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = less * np.log1p(-1.0 / orders) - np.log(orders)
        exponent, threshold = less * divergences, less * epsilon
        tangent = _log_expm1(exponent) - np.log(orders) - _log_expm1(threshold)
        logs = np.fmin(exponent - threshold + factor, tangent)
    # An order that rounds to 1 says nothing.
    return np.where(less > 0.0, logs, 0.0)


def _log_expm1(x: Array) -> Array:
    """log(e^x - 1); -inf at 0."""
    return np.asarray(np.where(x > 30.0, x, np.log(np.expm1(np.minimum(x, 30.0)))) + 0.0)


def rounded_up_exp(log: float) -> float:
    """A delta from its logarithm, rounded up; nan promises nothing."""
    if math.isnan(log):
        return 1.0
    slack = 1e-13 * (1.0 + abs(log)) if math.isfinite(log) else 0.0
    return min(1.0, max(up(math.exp(min(log + slack, 0.0)), THOUSANDS_OF_ROUNDINGS), TINY))
