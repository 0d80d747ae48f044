"""Several guarantees for one result."""

from collections.abc import Sequence

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.privacy_profile import PrivacyProfile


class BestProfile(PrivacyProfile):
    """Several guarantees for the same result: at every point the best of them."""

    def __init__(self, profiles: Sequence[PrivacyProfile]) -> None:
        _check_profiles(profiles)
        self._profiles = tuple(profiles)

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """All of them."""
        return self._profiles

    def __repr__(self) -> str:
        return f"BestProfile(profiles={self.profiles!r})"

    def deltas(self, epsilons: Array) -> Array:
        return np.asarray(np.min([p.deltas(epsilons) for p in self.profiles], axis=0))

    def epsilon(self, delta: float) -> float:
        return min(profile.epsilon(delta) for profile in self.profiles)

    def _tradeoff_at(self, alpha: float) -> float:
        return max(profile.tradeoff(alpha) for profile in self.profiles)

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
