r"""The guarantee of a computed result, from that of exact arithmetic.

**Bound.** On every data set let the computed result and the exact one be mu-GDP from each other, in
both directions, but for events of probability `failure` (`train.arithmetic`).  If the exact one is
:math:`(\varepsilon, \delta)`-DP then the computed one is, for every :math:`\kappa > 0`,

.. math:: \big(\varepsilon + 2\kappa,\; e^\kappa\delta
          + (1 + e^{\varepsilon + \kappa})\,\delta_\mu(\kappa)
          + (1 + e^{\varepsilon + 2\kappa})\,\mathit{failure}\big)\text{-DP},

where :math:`\delta_\mu` is the curve of mu-GDP.

**Proof.** Computed on D, exact on D, exact on D', computed on D'.  For an event S, but for
failures, :math:`P(S) \le e^\kappa P_0(S) + \delta_\mu(\kappa)`, then
:math:`P_0(S) \le e^\varepsilon P_0'(S) + \delta`, and
:math:`P_0'(S) \le e^\kappa P'(S) + \delta_\mu(\kappa)`; insert each into the one before.  A failure
adds its probability to P(S) and to P'(S), which counts :math:`e^{\varepsilon+2\kappa}` times.

It uses nothing of what the exact guarantee rests on, so that it holds for every bound, and it is
applied once, after all compositions: several computed results are, all together,
:math:`\sqrt{\sum\mu^2}`-GDP from the exact ones.  Distances add up linearly: mu-GDP becomes
:math:`(\mu_0 + 2\mu)`-GDP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    Array,
    at_least,
    down,
    up,
)
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile, Protected, check_order

_MULTIPLES = (6.0, 7.0, 8.0, 9.0, 11.0)  # of mu, to be tried as kappa
_FINE_MULTIPLES = np.arange(4.0, 16.0, 0.25)
_SLOPE = 0.1  # of epsilon in log delta, about, in units of epsilon
_LARGEST_EPSILON = 600.0  # an epsilon whose power is finite
_LARGE_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # no true curve rises beyond any of them


@dataclass(frozen=True)
class Rounding:
    """How far a computed result is from the exact one, on any data set."""

    mu: float
    failure: float

    def __post_init__(self) -> None:
        _check.number("mu", self.mu, at_least=0.0, infinite=True)
        _check.number("failure", self.failure, at_least=0.0, at_most=1.0)

    def beside(self, other: Rounding) -> Rounding:
        """The distance of two results together."""
        mu = at_least(math.hypot(self.mu, other.mu), ulps=2.0)
        return Rounding(mu, min(at_least(self.failure + other.failure, ulps=1.0), 1.0))


class RoundedProfile(PrivacyProfile):
    """The guarantee of a computed result whose exact counterpart has the guarantee `exact`.

    >>> exact = GaussianProfile(0.25)
    >>> computed = RoundedProfile(exact, Rounding(mu=1e-6, failure=1e-18))
    >>> exact.epsilon(1e-5) < computed.epsilon(1e-5) < exact.epsilon(1e-5) + 2e-5
    True
    """

    def __init__(self, exact: PrivacyProfile, rounding: Rounding) -> None:
        self.exact, self.rounding = exact, rounding

    @property
    def protected(self) -> Protected | None:
        """The change that the exact result hides."""
        return self.exact.protected

    def deltas(self, epsilons: Array) -> Array:
        """The least over several kappa, rounded up; far out, that of some smaller epsilon."""
        known = self._separate_deltas(epsilons)
        far = epsilons > _LARGE_EPSILONS[-1]
        return (
            np.where(far, np.minimum(known, self._least_far_delta), known) if np.any(far) else known
        )

    @cached_property
    def _least_far_delta(self) -> float:
        return float(self._separate_deltas(np.array(_LARGE_EPSILONS)).min())

    def _separate_deltas(self, epsilons: Array) -> Array:
        mu, failure = self.rounding.mu, self.rounding.failure
        if mu == 0.0:
            return self._deltas_with(epsilons, 0.0, 0.0, failure)
        if not math.isfinite(mu):
            return np.ones_like(epsilons)
        between = GaussianProfile(mu)
        found = [
            self._deltas_with(epsilons, kappa, between.delta(kappa), failure)
            for kappa in (multiple * mu for multiple in _MULTIPLES)
        ]
        return np.asarray(np.min(found, axis=0))

    def epsilon(self, delta: float) -> float:
        """The epsilon from one evaluation of the exact guarantee, with a nearly optimal kappa."""
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        mu, failure = self.rounding.mu, self.rounding.failure
        exact = self.exact.epsilon(target)
        if (
            (mu == 0.0 and failure == 0.0)
            or target == 1.0
            or not exact + mu < _LARGEST_EPSILON / 2.0
        ):
            return exact if mu == 0.0 and failure == 0.0 else super().epsilon(delta)
        between = GaussianProfile(mu) if mu > 0.0 else None
        best, kappa, lost = math.inf, 0.0, math.inf
        for one in mu * _FINE_MULTIPLES if between is not None else np.zeros(1):
            # Beyond the answer, so that what is lost there is more than at the answer.
            far = 1.01 * exact + 4.0 * one + 1e-3
            own = 0.0 if between is None else between.delta(float(one))
            more = (1.0 + math.exp(far + one)) * own + (1.0 + math.exp(far + 2.0 * one)) * failure
            if (rise := 2.0 * one + _SLOPE * max(exact, 1.0) * (more / max(target, 1e-300))) < best:
                best, kappa, lost = rise, float(one), more
        left = (target - up(lost, MILLIONS_OF_ROUNDINGS)) * math.exp(-kappa)
        left = down(left, FEW_ROUNDINGS)
        if not left > 0.0:
            return super().epsilon(delta)
        found = self.exact.epsilon(left)
        if not found <= 1.01 * exact + 2.0 * kappa + 1e-3:
            return super().epsilon(delta)
        return at_least(found + 2.0 * kappa, ulps=4.0)

    def _deltas_with(self, epsilons: Array, kappa: float, between: float, failure: float) -> Array:
        # Rounded down: less of epsilon is left for the exact result.
        left = epsilons - up(2.0 * kappa, MILLIONS_OF_ROUNDINGS)
        left = left - FEW_ROUNDINGS * np.minimum(epsilons, 1e300)
        known = self._two_sided(left)
        power = np.exp(np.minimum(left, _LARGEST_EPSILON))
        whole = (
            math.exp(kappa) * known
            + (1.0 + power * math.exp(kappa)) * between
            + (1.0 + power * math.exp(2.0 * kappa)) * failure
        )
        lost = between > 0.0 or failure > 0.0
        whole = np.where((left > _LARGEST_EPSILON) & lost, 1.0, up(whole, MILLIONS_OF_ROUNDINGS))
        return np.minimum(whole, 1.0)

    def _two_sided(self, epsilons: Array) -> Array:
        """The exact curve, at negative epsilons too, where both directions say the same."""
        known = self.exact.deltas(np.abs(epsilons))
        shrunk = np.exp(-np.abs(epsilons))
        grown = -np.expm1(-np.abs(epsilons))  # 1 - shrunk, without its cancellation
        return np.where(epsilons >= 0.0, known, grown + shrunk * known)

    def renyi(self, order: float) -> float:
        """No Renyi divergence is finite where something may fail."""
        alpha = check_order(order)
        if self.rounding.mu == 0.0 and self.rounding.failure == 0.0:
            return self.exact.renyi(alpha)
        return math.inf

    def gdp(self) -> float:
        """The exact mu and twice the distance; inf where something may fail."""
        return math.inf if self.rounding.failure > 0.0 else gdp_but_for_failure(self)

    def cheap(self) -> PrivacyProfile:
        return RoundedProfile(self.exact.cheap(), self.rounding)

    def __repr__(self) -> str:
        of = f"mu={self.rounding.mu:.3g}, failure={self.rounding.failure:.3g}"
        return f"RoundedProfile({self.exact!r}, {of})"


def gdp_but_for_failure(profile: PrivacyProfile) -> float:
    """The mu of everything but the failures; whoever uses it has to charge these, too.

    >>> computed = RoundedProfile(GaussianProfile(0.25), Rounding(mu=1e-6, failure=1e-18))
    >>> computed.gdp(), round(gdp_but_for_failure(computed), 9)
    (inf, 0.250002)
    """
    if isinstance(profile, RoundedProfile):
        exact, mu = profile.exact, profile.rounding.mu
        return at_least(exact.gdp() + 2.0 * mu, ulps=2.0)
    if isinstance(profile, BestProfile):
        return min(map(gdp_but_for_failure, profile.profiles))
    return profile.gdp()
