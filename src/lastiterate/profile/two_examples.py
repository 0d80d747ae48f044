r"""Two examples at once, by what is promised of one.

From :math:`P \le e^a Q + \delta(a)` and :math:`Q \le e^b R + \delta(b)`, for any split
:math:`a + b = \varepsilon`: :math:`P \le e^\varepsilon R + \delta(a) + e^a \delta(b)`.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, at_least, up
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order

_SHARES = np.linspace(0.0, 1.0, 33)
_SIZES = np.geomspace(1e-3, 50.0, 40)  # for an epsilon far beyond where anything is left


def twice(profile: PrivacyProfile) -> PrivacyProfile:
    """The guarantee of data sets that are two steps apart.

    >>> twice(GaussianProfile(0.5)).gdp()
    1.0
    """
    if isinstance(profile, GaussianProfile):
        return GaussianProfile(2.0 * profile.mu)
    return TwiceProfile(profile)


class TwiceProfile(PrivacyProfile):
    """Any guarantee, for data sets that are two steps apart."""

    def __init__(self, profile: PrivacyProfile) -> None:
        self.profile = profile

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon by the best of some splits, rounded up."""
        whole = epsilons[:, np.newaxis]
        first = np.hstack([whole * _SHARES, np.minimum(_SIZES, whole)])
        second = whole - first
        deltas = self.profile.deltas(np.concatenate([first.ravel(), second.ravel()]))
        at_first, at_second = deltas.reshape(2, *first.shape)
        both = at_first + np.exp(np.minimum(first, 700.0)) * at_second
        return np.asarray(np.minimum(up(both.min(axis=1), THOUSANDS_OF_ROUNDINGS), 1.0))

    def renyi(self, order: float) -> float:
        """inf: the curve alone is used."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """Twice as large."""
        return at_least(2.0 * self.profile.gdp(), ulps=1.0)
