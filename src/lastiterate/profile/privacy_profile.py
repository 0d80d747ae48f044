r"""The interface that every privacy guarantee has.

A profile bounds, for every pair of adjacent data sets and in both directions, the
hockey-stick divergence :math:`\delta(\varepsilon) = \sup_S P(S) - e^\varepsilon Q(S)` of what
is published.  Everything else follows from that curve.  Numbers are rounded towards less
privacy: epsilon, delta and divergences up, trade-off values down.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import at_most, ulps
from lastiterate._numerics.search import least_below
from lastiterate.errors import InvalidParameter, InvalidType

_LARGEST_EPSILON = 1e15


class PrivacyProfile(ABC):
    """An upper bound on the privacy loss of one published result."""

    @abstractmethod
    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0, rounded up."""

    def delta(self, epsilon: float) -> float:
        """The least delta of (epsilon, delta)-DP."""
        value = _check.number("epsilon", epsilon, at_least=0.0, infinite=True)
        return float(self.deltas(np.array([value]))[0])

    def epsilon(self, delta: float) -> float:
        """The least epsilon of (epsilon, delta)-DP; inf if there is none."""
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)

        def curve(epsilon: float) -> float:
            return float(self.deltas(np.array([epsilon]))[0])

        if curve(0.0) <= target:
            return 0.0
        low, high = 0.0, 1.0
        while not curve(high) <= target:
            low, high = high, 2.0 * high
            if high > _LARGEST_EPSILON:
                return math.inf
        return least_below(curve, target, low, high)

    @overload
    def tradeoff(self, fpr: float) -> float: ...
    @overload
    def tradeoff(self, fpr: Array | Sequence[float]) -> Array: ...
    def tradeoff(self, fpr: Any) -> float | Array:
        """The least false-negative rate of any test with this false-positive rate.

        An array of rates gives an array of the same shape.
        """
        rates = _rates(fpr)
        if rates is None:
            return self._tradeoff_at(_check.number("fpr", fpr, at_least=0.0, at_most=1.0))
        found = [self._tradeoff_at(float(alpha)) for alpha in rates.ravel()]
        return np.array(found, dtype=np.float64).reshape(rates.shape)

    def _tradeoff_at(self, alpha: float) -> float:
        """The trade-off at one rate in [0, 1], which was checked.

        It is the sup over epsilon of 1 - delta - e^epsilon alpha and
        e^-epsilon (1 - delta - alpha); every epsilon gives a valid value, so a search suffices.
        """
        epsilons = np.concatenate([[0.0], np.geomspace(1e-6, 700.0, 400)])
        best = 0.0
        for _ in range(3):
            values = self._tradeoffs(alpha, epsilons)
            top = int(np.argmax(values))
            best = max(best, float(values[top]))
            near = epsilons[max(top - 1, 0)], epsilons[min(top + 1, epsilons.size - 1)]
            epsilons = np.linspace(*near, 100)
        return at_most(best, ulps=16)

    def _tradeoffs(self, alpha: float, epsilons: Array) -> Array:
        off = ulps(4) * (1.0 + np.exp(epsilons) * alpha)
        return least_misses(alpha, epsilons, self.deltas(epsilons), off=off)

    @abstractmethod
    def renyi(self, order: float) -> float:
        """Renyi divergence of an order >= 1; inf if none is known."""

    @abstractmethod
    def gdp(self) -> float:
        """The least mu for which the result is mu-GDP; inf if there is none."""

    def cheap(self) -> PrivacyProfile:
        """A guarantee that may be weaker, and whose whole curve is quick to compute."""
        return self

    def advantage(self) -> float:
        """The most by which any attacker's true-positive rate exceeds its false-positive rate."""
        return self.delta(0.0)

    def compose(self, *others: PrivacyProfile) -> PrivacyProfile:
        """The guarantee of publishing this and the others, one after the other."""
        from lastiterate.profile.compose import compose  # it knows every kind of profile

        return compose(self, *others)

    def to_pld(self, *, discretization: float = 1e-4) -> Any:
        """A pessimistic `dp_accounting` privacy loss distribution."""
        from lastiterate.profile.pld import to_pld  # loads dp_accounting

        return to_pld(self, discretization=discretization)


def _rates(fpr: Any) -> Array | None:
    """Rates in [0, 1] as an array; None if a single number was given, or nothing of the kind."""
    if isinstance(fpr, (str, bytes)) or np.ndim(fpr) == 0:
        return None
    rates = np.asarray(fpr)
    must_be = "a number in [0, 1], or an array of such numbers"
    if rates.dtype.kind not in "iuf" and rates.size:
        raise InvalidType("fpr", fpr, must_be=must_be)
    rates = rates.astype(np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():  # nan fails both
        raise InvalidParameter("fpr", fpr, must_be=must_be)
    return rates


def check_order(order: float) -> float:
    """A Renyi order, at least 1 (1 is the Kullback-Leibler divergence)."""
    return _check.number("order", order, at_least=1.0, infinite=True)


def least_misses(
    fpr: float | Array, epsilons: Array, deltas: Array, *, off: float | Array = 0.0
) -> Array:
    """The least false-negative rates that (epsilon, delta)-DP, each by itself, leaves possible.

    1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr), whichever is more; negative where
    nothing is said.  `off` is what the numerators may be off by.
    """
    kept, growth = 1.0 - deltas, np.exp(epsilons)
    with np.errstate(over="ignore"):
        steep = kept - growth * fpr - off
    return np.asarray(np.maximum(steep, (kept - fpr - off) / growth))
