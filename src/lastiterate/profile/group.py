r"""Several examples at once, from a guarantee for one: group privacy without multiplying epsilon.

Data sets that differ in k examples are k steps apart.  If :math:`P_0, \dots, P_k` are published on
the way, :math:`P_{i-1}(S) \le e^{a_i} P_i(S) + \delta(a_i)`, so that for all :math:`a_i` of sum
:math:`\varepsilon`

.. math:: \delta_k(\varepsilon) \le \sum_i e^{a_1 + .. + a_{i-1}}\,\delta(a_i) .

The best :math:`a_i` give the k-fold trade-off function of Dong, Roth and Su 2022 (Theorem 2), and
:math:`k\mu` for a Gaussian one.  They may be negative, where
:math:`\delta(-t) = 1 - e^{-t}(1 - \delta(t))`.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import (
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    ulps,
    up,
)
from lastiterate.profile.best import BestProfile
from lastiterate.profile.curve import ChordCurve
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.profile.rounded import RoundedProfile

_CELLS_FROM_MEAN = 40  # the farthest an exponent may be from the mean, in cells
_CELLS_OF_MEAN = 16
_CELLS_OF_SCALE = 20
_MAX_SEPARATE_EPSILONS = 50  # of more a table is made
_LARGE_EPSILONS = (1.0, 5.0, 20.0, 100.0)
_SCALE_DELTA = 0.01  # the epsilon at this delta is the scale of losses
_SHARES = np.linspace(0.0, 1.0, 33)
_FIRST_EPSILONS = np.geomspace(1e-3, 50.0, 40)  # for an epsilon far beyond where anything is left


def for_group(profile: PrivacyProfile, size: int) -> PrivacyProfile:
    """The guarantee for a group of `size` examples that follows from one for a single example.

    >>> round(for_group(GaussianProfile(0.5), 3).gdp(), 6)
    1.5
    """
    size = _check.count("size", size, at_least=1)
    if size == 1:
        return profile
    if isinstance(profile, GaussianProfile):
        return GaussianProfile(at_least(size * profile.mu, ulps=2))
    if isinstance(profile, RoundedProfile):
        # The distance holds on every data set: it counts once, not for each of the examples.
        return RoundedProfile(for_group(profile.exact, size), profile.rounding)
    if isinstance(profile, BestProfile):
        return BestProfile([for_group(one, size) for one in profile.profiles])
    return GroupProfile(profile, size)


class GroupProfile(PrivacyProfile):
    """A guarantee for one example, applied to one example of the group after the other."""

    def __init__(self, profile: PrivacyProfile, size: int) -> None:
        self._profile, self._size = profile, size

    def __repr__(self) -> str:
        return f"GroupProfile({self._profile!r}, size={self._size})"

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon; at very many by chords of the curve, which is convex, too."""
        if epsilons.size > _MAX_SEPARATE_EPSILONS:
            return self._own_curve.deltas(epsilons)
        return self._separate_deltas(epsilons)

    def _separate_deltas(self, epsilons: Array) -> Array:
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def renyi(self, order: float) -> float:
        """The Renyi divergence of its Gaussian guarantee, if any: no triangle inequality holds."""
        alpha, mu = check_order(order), self.gdp()
        return GaussianProfile(mu).renyi(alpha) if mu < math.inf else math.inf

    def gdp(self) -> float:
        """mu: `size` times that of the profile."""
        mu = self._profile.gdp()
        return at_least(self._size * mu, ulps=2) if mu < math.inf else math.inf

    @cached_property
    def _scale(self) -> float:
        scale = self._profile.epsilon(_SCALE_DELTA)
        return scale if math.isfinite(scale) else 0.0

    @cached_property
    def _curve(self) -> ChordCurve:
        return ChordCurve(self._profile.epsilon, self._profile.deltas)

    @cached_property
    def _own_curve(self) -> ChordCurve:
        return ChordCurve(self.epsilon, self._separate_deltas)

    @cached_property
    def _least_far_delta(self) -> float:
        """The least delta of some finite epsilons, which holds beyond all of them."""
        return min(self._delta(finite) for finite in _LARGE_EPSILONS)

    def _delta(self, epsilon: float) -> float:
        if math.isinf(epsilon):
            if self._profile.delta(math.inf) == 0.0:
                return 0.0
            return self._least_far_delta
        cells = {epsilon / self._size / _CELLS_OF_MEAN, self._scale / _CELLS_OF_SCALE}
        found = min(self._by_cells(epsilon, cell) for cell in cells)
        # Cells that wide miss the best exponents, and no curve rises.
        return min(found, self._least_far_delta) if epsilon > _LARGE_EPSILONS[-1] else found

    def _by_cells(self, epsilon: float, cell: float) -> float:
        """The least sum over exponents that are whole cells away from their mean."""
        away = np.arange(-_CELLS_FROM_MEAN, _CELLS_FROM_MEAN + 1)
        exponents = epsilon / self._size + cell * away
        # The sum of exponents is a rounding off epsilon, which is made up for.
        exponents = exponents - ulps(4) * (np.abs(exponents) + epsilon)
        deltas = self._curve.deltas(exponents)
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.exp(exponents)
            whole = deltas
            rest = away[:, None] - away[None, :] + _CELLS_FROM_MEAN
            inside = (rest >= 0) & (rest < away.size)
            for _ in range(self._size - 1):
                later = np.where(inside, whole[np.clip(rest, 0, away.size - 1)], np.inf)
                sums = deltas[None, :] + growth[None, :] * later
                whole = np.where(np.isnan(sums), np.inf, sums).min(axis=1)
        slack = TENS_OF_THOUSANDS_OF_ROUNDINGS * self._size
        return min(up(float(whole[_CELLS_FROM_MEAN]), slack), 1.0)


def for_pair(profile: PrivacyProfile) -> PrivacyProfile:
    """The guarantee for data sets that are two steps apart, by splits of epsilon in two.

    It uses finer splits than `for_group(profile, 2)`.

    >>> for_pair(GaussianProfile(0.5)).gdp()
    1.0
    """
    if isinstance(profile, GaussianProfile):
        return GaussianProfile(2.0 * profile.mu)
    if isinstance(profile, RoundedProfile):
        return RoundedProfile(for_pair(profile.exact), profile.rounding)
    return PairProfile(profile)


class PairProfile(PrivacyProfile):
    r"""Any guarantee, for data sets that are two steps apart.

    If :math:`P \le e^a Q + \delta(a)` and :math:`Q \le e^b R + \delta(b)`, then
    :math:`P \le e^\varepsilon R + \delta(a) + e^a \delta(b)` for any split
    :math:`a + b = \varepsilon`.
    """

    def __init__(self, profile: PrivacyProfile) -> None:
        self.profile = profile

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon by the best of some splits, rounded up."""
        whole = epsilons[:, np.newaxis]
        first = np.hstack([whole * _SHARES, np.minimum(_FIRST_EPSILONS, whole)])
        second = whole - first
        deltas = self.profile.deltas(np.concatenate([first.ravel(), second.ravel()]))
        at_first, at_second = deltas.reshape(2, *first.shape)
        both = at_first + np.exp(np.minimum(first, 700.0)) * at_second
        return np.asarray(np.minimum(up(both.min(axis=1), THOUSANDS_OF_ROUNDINGS), 1.0))

    def renyi(self, order: float) -> float:
        """inf: Renyi divergences obey no triangle inequality."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """mu: twice that of the profile."""
        return at_least(2.0 * self.profile.gdp(), ulps=1.0)
