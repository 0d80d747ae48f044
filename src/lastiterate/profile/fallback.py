"""A guarantee that says little of very small deltas, and another that is asked for these."""

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.profile.privacy_profile import PrivacyProfile


class FallbackProfile(PrivacyProfile):
    """`usual`, and for deltas below a limit the better of it and what `otherwise` makes.

    That is made when it is first needed, which is hardly ever: also where `usual` has no epsilon.

    >>> from lastiterate.profile.gaussian import GaussianProfile
    >>> from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
    >>> rounded = GaussianMixtureProfile([1.0], [0.5], lost=1e-9)
    >>> both = OtherwiseProfile(rounded, below=1e-7, otherwise=lambda: GaussianProfile(0.6))
    >>> rounded.epsilon(1e-12), round(both.epsilon(1e-12), 2)
    (inf, 4.18)
    """

    def __init__(
        self, usual: PrivacyProfile, *, below: float, otherwise: Callable[[], PrivacyProfile]
    ) -> None:
        self.usual = usual
        self._below, self._otherwise = below, otherwise

    def __repr__(self) -> str:
        return f"OtherwiseProfile({self.usual!r}, below={self._below:.1e})"

    @cached_property
    def _other(self) -> PrivacyProfile:
        return self._otherwise()

    def deltas(self, epsilons: Array) -> Array:
        deltas = np.array(self.usual.deltas(epsilons), dtype=np.float64)
        small = deltas < self._below
        if np.any(small):
            deltas[small] = np.minimum(deltas[small], self._other.deltas(epsilons[small]))
        return deltas

    def epsilon(self, delta: float) -> float:
        usual = self.usual.epsilon(delta)
        if delta < self._below or math.isinf(usual):
            return min(usual, self._other.epsilon(delta))
        return usual

    def _tradeoff_at(self, alpha: float) -> float:
        return self.usual.tradeoff(alpha)

    def renyi(self, order: float) -> float:
        return self.usual.renyi(order)

    def gdp(self) -> float:
        return self.usual.gdp()
