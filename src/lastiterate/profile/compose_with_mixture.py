r"""A guarantee beside Gaussian ones of which chance decides how much each of them tells.

With probability :math:`w_s`, which is independent of all else and may be known, the rest is
:math:`\mu_s`-GDP: the average of the curves beside each of them bounds that of all together.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, up
from lastiterate.profile.chord_curve import ChordCurve
from lastiterate.profile.compose_with_gaussian import GaussianCompositionProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import averaged
from lastiterate.profile.staged import StagedProfile


def compose_with_mixture(profile: PrivacyProfile, more: GaussianMixtureProfile) -> PrivacyProfile:
    """The composition of `profile` with Gaussian mechanisms that have this law of mu."""
    if isinstance(profile, GaussianCompositionProfile):
        return compose_with_mixture(profile.profile, _joined(more, _always(profile.mu)))
    if isinstance(profile, StagedProfile):
        return profile.each(partial(compose_with_mixture, more=more))
    profile = profile.cheap()
    if isinstance(profile, GaussianProfile) or more.lost > 0.0 or math.isinf(more.gdp()):
        return _joined(more, _always(profile.gdp()))
    if isinstance(profile, GaussianMixtureProfile):
        return _joined(more, profile)
    return MixtureCompositionProfile(profile, more)


class MixtureCompositionProfile(PrivacyProfile):
    """Any guarantee, and Gaussian mechanisms with a law of mu, all published."""

    def __init__(self, profile: PrivacyProfile, more: GaussianMixtureProfile) -> None:
        self.profile, self.more = profile, more
        table = ChordCurve(profile.epsilon, profile.deltas)
        self._parts = [
            GaussianCompositionProfile(profile, mu, table).by_chords
            if mu > 0.0
            else table.on_both_sides
            for mu in more.mus.tolist()
        ]

    def deltas(self, epsilons: Array) -> Array:
        """The average, by chords."""
        whole = np.zeros(epsilons.size)
        for weight, part in zip(self.more.weights, self._parts, strict=True):
            whole += weight * part(epsilons)
        return np.minimum(up(whole, MILLIONS_OF_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        """The Renyi divergence of the composition, with mu known to the attacker; rounded up."""
        alpha = check_order(order)
        own = self.profile.renyi(alpha)
        if not math.isfinite(own) or math.isinf(alpha):
            return math.inf
        values = alpha * self.more.mus**2 / 2.0 + own
        return at_least(averaged(self.more.weights, values, alpha), ulps=16.0)

    def gdp(self) -> float:
        """Squares add up, of the largest."""
        return at_least(math.hypot(self.profile.gdp(), self.more.gdp()), ulps=2.0)

    def __repr__(self) -> str:
        return f"BesideMixtureProfile({self.profile!r}, {self.more!r})"


def _always(mu: float) -> GaussianMixtureProfile:
    return GaussianMixtureProfile([1.0], [mu])


def _joined(one: GaussianMixtureProfile, other: GaussianMixtureProfile) -> GaussianMixtureProfile:
    """Both, by independent chance: squares of mu add up."""
    weights = np.outer(one.weights, other.weights).ravel()
    mus = up(np.hypot.outer(one.mus, other.mus).ravel(), MILLIONS_OF_ROUNDINGS)
    return GaussianMixtureProfile(weights, mus, lost=min(one.lost + other.lost, 1.0))
