"""Pure differential privacy: no event changes its probability by more than a factor."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfinv, log_ndtr, ndtri_exp

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    at_least,
    ulps,
    up,
)
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order


@dataclass(frozen=True)
class PureProfile(PrivacyProfile):
    """(limit, 0)-DP; its worst case is randomised response.

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
