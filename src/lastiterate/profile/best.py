"""Guarantees made of guarantees: a secret choice among several, and the best of several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import FEW_ROUNDINGS, at_least, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import averaged


@dataclass(frozen=True)
class MixtureProfile(PrivacyProfile):
    """One of several mechanisms, chosen in secret and independently of the data.

    Hockey-stick divergence is jointly convex, so the average of the delta curves bounds the
    mixture's.  The weights must add up to 1.
    """

    weights: tuple[float, ...]
    profiles: tuple[PrivacyProfile, ...]

    def __init__(self, weights: Sequence[float], profiles: Sequence[PrivacyProfile]) -> None:
        _check_profiles(profiles)
        array = _check.numbers("weights", weights, length=len(profiles))
        total = math.fsum(array)
        if not abs(total - 1.0) <= 1e-9:
            raise InvalidParameter("weights", tuple(weights), must_be="numbers that add up to 1")
        object.__setattr__(self, "weights", tuple(array.tolist()))
        object.__setattr__(self, "profiles", tuple(profiles))

    def deltas(self, epsilons: Array) -> Array:
        total = sum(w * p.deltas(epsilons) for w, p in self._parts())
        # Weights a little short of 1 would promise a little too much.
        short = max(0.0, 1.0 - math.fsum(self.weights))
        return np.minimum(up(np.asarray(total), FEW_ROUNDINGS * len(self.weights)) + short, 1.0)

    def renyi(self, order: float) -> float:
        alpha = check_order(order)
        values = np.array([profile.renyi(alpha) for _, profile in self._parts()])
        top = float(values.max())
        if alpha == math.inf or not math.isfinite(top):
            return top
        weights = np.array([w for w, _ in self._parts()]) / max(1.0, math.fsum(self.weights))
        return at_least(averaged(weights, values, alpha), ulps=4.0) if top > 0.0 else 0.0

    def gdp(self) -> float:
        """The largest part's: as epsilon grows it alone decides the curve."""
        return max(profile.gdp() for _, profile in self._parts())

    def _parts(self) -> list[tuple[float, PrivacyProfile]]:
        return [(w, p) for w, p in zip(self.weights, self.profiles, strict=True) if w > 0.0]


@dataclass(frozen=True)
class BestProfile(PrivacyProfile):
    """Several guarantees for the same result: at every point the best of them."""

    profiles: tuple[PrivacyProfile, ...]

    def __init__(self, profiles: Sequence[PrivacyProfile]) -> None:
        _check_profiles(profiles)
        object.__setattr__(self, "profiles", tuple(profiles))

    def deltas(self, epsilons: Array) -> Array:
        return np.asarray(np.min([p.deltas(epsilons) for p in self.profiles], axis=0))

    def epsilon(self, delta: float) -> float:
        return min(profile.epsilon(delta) for profile in self.profiles)

    def tradeoff(self, fpr: float) -> float:
        return max(profile.tradeoff(fpr) for profile in self.profiles)

    def renyi(self, order: float) -> float:
        return min(profile.renyi(order) for profile in self.profiles)

    def gdp(self) -> float:
        return min(profile.gdp() for profile in self.profiles)


def _check_profiles(profiles: object) -> None:
    must_be = "a sequence of at least one PrivacyProfile"
    if not isinstance(profiles, Sequence) or not all(
        isinstance(profile, PrivacyProfile) for profile in profiles
    ):
        raise InvalidType("profiles", profiles, must_be=must_be)
    if not profiles:
        raise InvalidParameter("profiles", profiles, must_be=must_be)
