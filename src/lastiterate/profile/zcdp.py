"""Zero-concentrated differential privacy: a Renyi divergence proportional to the order.

From all orders above 1 together Bun and Steinke 2016, Lemma 3.5, besides what each one tells.
"""

import math
from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import TINY, at_least
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import log_deltas, rounded_up_exp


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
