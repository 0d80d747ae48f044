r"""A guarantee beside a Gaussian one: the curve of both together, to any precision wanted.

The privacy loss of a Gaussian mechanism is l ~ N(mu^2/2, mu^2), independent of all else, so that

.. math:: \delta(\varepsilon) = \mathbb E\,\delta_0(\varepsilon - l), \qquad
          \delta_0(-a) = 1 - e^{-a} + e^{-a}\,\delta_0(a)

(the second by exchanging the two data sets).  As a function of :math:`e^\varepsilon` a curve is
convex, and on a cell of l it lies below its chord; chords are averaged exactly.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from scipy.special import ndtr

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, ulps, up
from lastiterate.profile.best import BestProfile
from lastiterate.profile.chord_curve import ChordCurve
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order
from lastiterate.profile.staged import StagedProfile

# Cells of l: as wide as this, or as this many standard deviations, whichever is less.
_WIDTH = 0.05
_WIDEST = 0.25
_MANY = 4  # questions at once, which a table answers
_LEAST_FALL = 1e-5  # of e^-l over a cell, relative
_LEAST = 1e-290  # e^-l below this loses digits, or is 0


def compose_with_gaussian(profile: PrivacyProfile, mu: float) -> PrivacyProfile:
    """The composition of `profile` with a Gaussian mechanism of this mu."""
    mu = _check.number("mu", mu, at_least=0.0, infinite=True)
    if mu == 0.0:
        return profile
    if _is_gaussian(profile) or math.isinf(mu):
        whole = math.hypot(profile.gdp(), mu)
        return GaussianProfile(at_least(whole, ulps=2.0))
    if isinstance(profile, StagedProfile):
        return profile.each(partial(compose_with_gaussian, mu=mu))
    return GaussianCompositionProfile(profile.cheap(), mu)


def _is_gaussian(profile: PrivacyProfile) -> bool:
    """Whether mu says all that the profile does."""
    if isinstance(profile, BestProfile):
        return all(isinstance(one, GaussianProfile) for one in profile.profiles)
    return isinstance(profile, GaussianProfile)


class GaussianCompositionProfile(PrivacyProfile):
    """Any guarantee and that of a Gaussian mechanism, both published.

    `table` is the guarantee's curve by chords, if that is known already.
    """

    def __init__(self, profile: PrivacyProfile, mu: float, table: ChordCurve | None = None) -> None:
        self.profile, self.mu = profile, mu
        self._table = table
        edges = _edges(mu)
        self._losses = mu * mu / 2.0 + mu * edges
        self._left, self._right = _chords(edges, mu)
        self._lowest, self._beyond = float(ndtr(edges[0])), float(ndtr(-edges[-1]))

    def deltas(self, epsilons: Array) -> Array:
        """By chords in every cell of the loss, rounded up."""
        if epsilons.size > _MANY:
            return self.by_chords(epsilons)
        return self._averaged(_two_sided(self.profile, self._asked(epsilons)))

    def by_chords(self, epsilons: Array) -> Array:
        """From a table of the guarantee alone, which is made once."""
        if self._table is None:
            self._table = ChordCurve(self.profile.epsilon, self.profile.deltas)
        return self._averaged(self._table.on_both_sides(self._asked(epsilons)))

    def _asked(self, epsilons: Array) -> Array:
        asked = epsilons[:, np.newaxis]
        finite = np.where(np.isfinite(asked), asked, 0.0)  # what is infinite has no rounding
        return np.asarray(asked - self._losses - ulps(2) * (finite + np.abs(self._losses)))

    def _averaged(self, at: Array) -> Array:
        inside = at[:, :-1] @ self._left + at[:, 1:] @ self._right
        whole = inside + self._lowest * at[:, 0] + self._beyond
        return np.minimum(up(whole, MILLIONS_OF_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        """They add up."""
        alpha = check_order(order)
        own = alpha * self.mu * self.mu / 2.0
        return at_least(self.profile.renyi(alpha) + own, ulps=4.0)

    def gdp(self) -> float:
        """Squares add up."""
        return at_least(math.hypot(self.profile.gdp(), self.mu), ulps=2.0)

    def __repr__(self) -> str:
        return f"BesideGaussianProfile({self.profile!r}, mu={self.mu:.4g})"


def _edges(mu: float) -> Array:
    """In standard deviations of l; beyond the last there is next to no probability."""
    step = max(min(_WIDEST, _WIDTH / mu), 0.01)
    return np.concatenate([np.arange(-6.0, 6.0, step), np.arange(6.0, 12.5, step), [20.0, 38.0]])


def _chords(edges: Array, mu: float) -> tuple[Array, Array]:
    r"""For each cell, the weights of the chord's two ends.

    With :math:`t = e^{-l}` the chord at l has weight :math:`(t - t_2)/(t_1 - t_2)` on its left end,
    and the mean of t over a cell is that of a Gaussian shifted by mu: :math:`E[e^{-l}; cell]` is
    the mass of the cell under N(-mu^2/2, mu^2).  A cell whose t is too small for that counts as its
    right end, where the curve is highest.
    """
    masses, shifted = _masses(edges), _masses(edges + mu)
    t = np.exp(-np.minimum(mu * mu / 2.0 + mu * edges, -math.log(_LEAST) + 1.0))
    # Where t hardly falls over a cell, the differences below are nothing but rounding.
    known = (t[1:] > _LEAST) & (t[:-1] - t[1:] > _LEAST_FALL * t[:-1])
    left = np.zeros_like(masses)
    np.divide(shifted - t[1:] * masses, t[:-1] - t[1:], out=left, where=known)
    left = np.clip(left, 0.0, masses)
    return left, masses - left


def _masses(edges: Array) -> Array:
    """Standard normal probabilities of the cells, each from the shorter tail."""
    below, above = np.diff(ndtr(edges)), -np.diff(ndtr(-edges))
    return np.asarray(np.where(edges[1:] <= 0.0, below, above))


def _two_sided(profile: PrivacyProfile, epsilons: Array) -> Array:
    """The curve at any epsilon, negative ones too."""
    sizes = np.abs(epsilons)
    known = profile.deltas(sizes.ravel()).reshape(sizes.shape)
    shrunk = np.exp(-sizes)
    return np.where(epsilons >= 0.0, known, 1.0 - shrunk + shrunk * known)
