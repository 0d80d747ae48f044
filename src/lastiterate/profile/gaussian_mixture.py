"""A secret, data-independent choice among Gaussian guarantees: a law of mu."""

import math

import numpy as np
from numpy.typing import ArrayLike

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, at_least, ulps, up
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import averaged

_CELLS_AT_ONCE = 1 << 20


class GaussianMixtureProfile(PrivacyProfile):
    """mu_i-GDP with probability weight_i, which of them being secret.

    Hockey-stick divergence is jointly convex, so the average of the delta curves bounds the
    mixture's.  `lost` is the probability that is not accounted for, or not where it should be:
    it is charged delta = 1, on top.  The weights must add up to 1, or lack at most that; up to 1e-9
    more is taken for rounding: it is given back, or, where something is lost, lost too.

    Examples
    --------
    >>> profile = GaussianMixtureProfile([0.5, 0.5], [0.5, 1.0])
    >>> round(profile.epsilon(1e-5), 4), profile.gdp()
    (4.2124, 1.0)
    """

    def __init__(self, weights: ArrayLike, mus: ArrayLike, *, lost: float = 0.0) -> None:
        values = np.array(mus, dtype=np.float64)
        if values.ndim != 1 or not values.size or not np.all(values >= 0.0):
            raise InvalidParameter("mus", mus, must_be="a sequence of numbers in [0, inf]")
        shares = _check.numbers("weights", weights, length=values.size)
        self._lost = _check.number("lost", lost, at_least=0.0, at_most=1.0)
        total = math.fsum(shares)
        if not 1.0 - self._lost - 1e-9 <= total <= 1.0 + 1e-9:
            raise InvalidParameter("weights", weights, must_be="numbers that add up to 1")
        if self._lost > 0.0:
            self._lost = min(max(self._lost, up(1.0 - total, ulps(2))), 1.0)
        weighty = shares > 0.0
        self._mus = values[weighty]
        # What rounding took from the weights is given back.
        self._weights = shares[weighty] * (max(1.0, 1.0 / total) if self._lost == 0.0 else 1.0)

    @property
    def weights(self) -> Array:
        """The probabilities."""
        return self._weights.copy()

    @property
    def mus(self) -> Array:
        """The Gaussian parameters."""
        return self._mus.copy()

    @property
    def lost(self) -> float:
        """The probability that is not accounted for."""
        return self._lost

    def __repr__(self) -> str:
        if not self._mus.size:
            return "GaussianMixtureProfile(nothing promised)"
        low, high = self._mus.min(), self._mus.max()
        return f"GaussianMixtureProfile({self._mus.size} parts, mu from {low:.4g} to {high:.4g})"

    def deltas(self, epsilons: Array) -> Array:
        rows = max(1, _CELLS_AT_ONCE // max(self._mus.size, 1))
        parts = [
            gaussian_deltas(*np.broadcast_arrays(self._mus, epsilons[k : k + rows, None]))
            @ self._weights
            for k in range(0, epsilons.size, rows)
        ]
        known = up(np.concatenate(parts), ulps(self._weights.size + 4))
        return np.minimum(up(known + self._lost, ulps(1)) if self._lost else known, 1.0)

    def renyi(self, order: float) -> float:
        """log of the average of exp((order - 1) order mu^2 / 2), over order - 1."""
        alpha = check_order(order)
        if self._lost > 0.0 or not self._mus.size:
            return math.inf
        top = float(self._mus.max())
        if alpha == math.inf or math.isinf(top):
            return math.inf if top > 0.0 else 0.0
        values = alpha * self._mus * self._mus / 2
        return at_least(averaged(self._weights, values, alpha), ulps=8.0) if top > 0.0 else 0.0

    def gdp(self) -> float:
        """The largest mu: as epsilon grows it alone decides the curve."""
        if self._lost > 0.0 or not self._mus.size:
            return math.inf
        return float(self._mus.max())


_RATIO = 2e-3  # by which levels are rounded up at most, at every draw
_LEAST = 1e-4  # of the largest level: what is below is raised to it
_AT_ONCE = 256


def several_draws(
    one: GaussianMixtureProfile, count: int, *, density: float = 1.0
) -> GaussianMixtureProfile:
    """The law of the sum of so many draws, rounded up.

    `density` is the most by which their joint law may exceed that of independent draws, relative
    to it; the sums that are worst then have that much more weight.

    >>> several_draws(GaussianMixtureProfile([0.9, 0.1], [0.0, 1.0]), 2).weights.round(2)
    array([0.81, 0.18, 0.01])
    """
    levels, masses = sum_of_draws(one.mus, one.weights, count)
    if density > 1.0:
        masses = _heavier(masses, density)
    # Each of them may be among those that are not accounted for.
    lost = min(up(count * one.lost, MILLIONS_OF_ROUNDINGS), 1.0)
    return GaussianMixtureProfile(masses, levels, lost=lost)


def sum_of_draws(levels: Array, masses: Array, count: int) -> tuple[Array, Array]:
    """Levels in ascending order, rounded up, and their chances."""
    single = _coarse(levels, masses)
    sums = single
    for _ in range(count - 1):
        sums = _added(sums, single)
    return sums


def _coarse(levels: Array, masses: Array) -> tuple[Array, Array]:
    """Levels and masses on a geometric grid, every level but 0 rounded up."""
    top = float(levels.max(initial=0.0))
    if not 0.0 < top < math.inf:
        return levels, masses
    least, step = _LEAST * top, math.log1p(_RATIO)
    at = np.ceil(np.log(np.maximum(levels, least) / least) / step).astype(np.int64)
    counted = np.bincount(np.where(levels > 0.0, at + 1, 0), masses).astype(np.float64)
    grid = up(least * np.exp(step * np.arange(counted.size - 1)), MILLIONS_OF_ROUNDINGS)
    used = counted > 0.0
    return np.append(0.0, grid)[used], counted[used]


def _added(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    blocks = []
    for first in range(0, other[0].size, _AT_ONCE):
        levels, masses = (part[first : first + _AT_ONCE] for part in other)
        sums = (one[0][:, None] + levels).ravel()
        blocks.append(_coarse(sums, (one[1][:, None] * masses).ravel()))
    return _coarse(
        np.concatenate([block[0] for block in blocks]),
        np.concatenate([block[1] for block in blocks]),
    )


def _heavier(masses: Array, density: float) -> Array:
    """Masses with `density` times as much on the largest levels, until all is used up."""
    above = np.minimum(np.cumsum((masses * density)[::-1]), math.fsum(masses))
    return np.diff(above, prepend=0.0)[::-1]
