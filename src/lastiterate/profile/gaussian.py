r"""Gaussian differential privacy: no easier to tell apart than N(0, 1) and N(mu, 1).

Beside one mu there are a sampled batch, and a secret choice of mu that does not depend on the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, erfcx, ndtr, ndtri

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    at_least,
    at_most,
    down,
    ulps,
    up,
)
from lastiterate.errors import InvalidParameter
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import averaged

_ROOT_HALF = math.sqrt(0.5)
_CELLS_AT_ONCE = 1 << 20  # of an array, for the sake of memory
_LEVEL_RATIO = 2e-3  # by which levels are rounded up at most, at every draw
_LEAST_LEVEL = 1e-4  # of the largest level: what is below is raised to it
_LEVELS_AT_ONCE = 256  # of one law, each with all of the other


@dataclass(frozen=True)
class GaussianProfile(PrivacyProfile):
    """The guarantee of mu-Gaussian differential privacy.

    Parameters
    ----------
    mu : float
        At least 0; inf promises nothing.

    Examples
    --------
    >>> profile = GaussianProfile(1.0)
    >>> round(profile.epsilon(1e-5), 4), round(profile.delta(1.0), 4), round(profile.renyi(2.0), 9)
    (4.3772, 0.1269, 1.0)
    """

    mu: float

    def __post_init__(self) -> None:
        value = _check.number("mu", self.mu, at_least=0.0, infinite=True)
        object.__setattr__(self, "mu", value)

    def deltas(self, epsilons: Array) -> Array:
        return gaussian_deltas(np.full(epsilons.shape, self.mu), epsilons)

    def _tradeoff_at(self, alpha: float) -> float:
        """Phi(Phi^-1(1 - alpha) - mu), rounded down."""
        if alpha == 0.0 or self.mu == math.inf:
            return 1.0 if alpha == 0.0 and self.mu < math.inf else 0.0
        if alpha == 1.0:
            return 0.0
        quantile = float(ndtri(alpha))
        x = -quantile - self.mu
        off = 8.0 * (abs(quantile) + self.mu + 1.0)  # ulps of x, absolutely
        return at_most(float(ndtr(x)), ulps=32.0 + (abs(x) + 1.0) * off)

    def renyi(self, order: float) -> float:
        alpha = check_order(order)
        return at_least(max(alpha * self.mu * self.mu / 2, TINY), ulps=2) if self.mu else 0.0

    def gdp(self) -> float:
        return self.mu


def gaussian_deltas(mus: Array, epsilons: Array) -> Array:
    r"""Phi(-a) - e^epsilon Phi(-b), a = epsilon/mu - mu/2, b = a + mu, rounded up, elementwise.

    As printed the second term is inf * 0 for large epsilon.  Since e^epsilon is
    e^((b^2 - a^2)/2), both terms are e^(-a^2/2)/2 times a scaled error function;
    for a < 0, where that could overflow, the first is an error function itself.
    epsilon/mu is taken 4 ulps low, which moves delta up; what remains is a relative
    error of 16 ulps in each term and of a^2 ulps in the common factor.
    """
    mu = np.clip(mus, 1e-150, 1e150)  # below that more; above, delta is 1 all the same
    # Beyond 1e6 standard deviations every term is 0 and is reported as TINY.
    with np.errstate(over="ignore"):
        ratio = down(np.minimum(epsilons / mu, 1e6 + mu), ulps(4))
    a, b = ratio - mu / 2, ratio + mu / 2
    common = 0.5 * np.exp(-np.minimum(0.5 * a * a, 750.0))
    first = np.where(
        a < 0.0, 0.5 * erfc(a * _ROOT_HALF), common * erfcx(np.maximum(a, 0.0) * _ROOT_HALF)
    )
    second = common * erfcx(b * _ROOT_HALF)
    difference = np.maximum(first - second, 0.0)
    factor = ulps(np.minimum(2 * a * a + 16, 3200.0))
    error = difference * factor + (first + second) * ulps(16)
    error += np.where(a < 0.0, second * factor, 0.0)
    deltas = np.clip(difference + error, TINY, 1.0)
    return np.where(mus == 0.0, 0.0, np.where(mus == np.inf, 1.0, deltas))


def deltas_on_both_sides(mus: Array, epsilons: Array) -> Array:
    """delta of each mu at each epsilon, which may be negative; rounded up."""
    away = np.abs(epsilons)
    curve = gaussian_deltas(mus, away)
    return np.where(epsilons < 0.0, _mirror(curve, away), curve)


def deltas_on_grid(mus: Array, cell: float, first: int, last: int) -> Array:
    """delta of every mu at the multiples of a cell from first <= 0 to last >= 0; rounded up."""
    away = cell * np.arange(max(-first, last) + 1, dtype=np.float64)
    shape = (mus.size, away.size)
    curve = gaussian_deltas(np.broadcast_to(mus[:, None], shape), np.broadcast_to(away, shape))
    below = _mirror(curve[:, 1 : 1 - first], away[1 : 1 - first])
    return np.concatenate([below[:, ::-1], curve[:, : last + 1]], axis=1)


def _mirror(curve: Array, away: Array) -> Array:
    """delta(-t) = 1 - e^-t (1 - delta(t))."""
    return np.minimum(up(-np.expm1(-away) + np.exp(-away) * curve, ulps(8)), 1.0)


class SubsampledGaussian(PrivacyProfile):
    """A Gaussian mechanism on a batch that has the example with some probability.

    delta(t) = p delta_mu(log(1 + (e^t - 1)/p)) for t >= 0, in both directions: C_p(G(mu)) of Dong,
    Roth and Su 2022.

    >>> SubsampledGaussian(0.01, 1.0).delta(0.5) < 0.01
    True
    """

    def __init__(self, probability: float, ratio: float) -> None:
        self._probability, self._ratio = probability, ratio

    def deltas(self, epsilons: Array) -> Array:
        with np.errstate(over="ignore"):
            shifted = np.log1p(np.expm1(np.minimum(epsilons, 700.0)) / self._probability)
        shifted = down(np.minimum(shifted, 1e6), FEW_ROUNDINGS)
        deltas = gaussian_deltas(np.full(epsilons.shape, self._ratio), shifted)
        return np.minimum(up(self._probability * deltas, FEW_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        return math.inf

    def gdp(self) -> float:
        return math.inf


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


def several_draws(
    one: GaussianMixtureProfile, count: int, *, density: float = 1.0
) -> GaussianMixtureProfile:
    """The law of the sum of this many draws, rounded up.

    `density` is the most by which their joint law may exceed that of independent draws, relative
    to it; the sums that are worst then have that much more weight.

    >>> several_draws(GaussianMixtureProfile([0.9, 0.1], [0.0, 1.0]), 2).weights.round(2)
    array([0.81, 0.18, 0.01])
    """
    levels, masses = sum_of_draws(one.mus, one.weights, count)
    if density > 1.0:
        masses = _weighted_to_largest(masses, density)
    # Each of them may be among those that are not accounted for.
    lost = min(up(count * one.lost, MILLIONS_OF_ROUNDINGS), 1.0)
    return GaussianMixtureProfile(masses, levels, lost=lost)


def sum_of_draws(levels: Array, masses: Array, count: int) -> tuple[Array, Array]:
    """Levels in ascending order, rounded up, and their chances."""
    single = _round_up_levels(levels, masses)
    sums = single
    for _ in range(count - 1):
        sums = _add_levels(sums, single)
    return sums


def _round_up_levels(levels: Array, masses: Array) -> tuple[Array, Array]:
    """Levels and masses on a geometric grid, every level but 0 rounded up."""
    top = float(levels.max(initial=0.0))
    if not 0.0 < top < math.inf:
        return levels, masses
    least, step = _LEAST_LEVEL * top, math.log1p(_LEVEL_RATIO)
    at = np.ceil(np.log(np.maximum(levels, least) / least) / step).astype(np.int64)
    counted = np.bincount(np.where(levels > 0.0, at + 1, 0), masses).astype(np.float64)
    grid = up(least * np.exp(step * np.arange(counted.size - 1)), MILLIONS_OF_ROUNDINGS)
    used = counted > 0.0
    return np.append(0.0, grid)[used], counted[used]


def _add_levels(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The law of the sum of two independent draws, on the grid of levels."""
    blocks = []
    for first in range(0, other[0].size, _LEVELS_AT_ONCE):
        levels, masses = (part[first : first + _LEVELS_AT_ONCE] for part in other)
        sums = (one[0][:, None] + levels).ravel()
        blocks.append(_round_up_levels(sums, (one[1][:, None] * masses).ravel()))
    return _round_up_levels(
        np.concatenate([block[0] for block in blocks]),
        np.concatenate([block[1] for block in blocks]),
    )


def _weighted_to_largest(masses: Array, density: float) -> Array:
    """Masses with `density` times as much on the largest levels, until all is used up."""
    above = np.minimum(np.cumsum((masses * density)[::-1]), math.fsum(masses))
    return np.diff(above, prepend=0.0)[::-1]


def normal_cells(edges: Array, upper: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The standard normal probability of each cell between `edges`, and the tail it came from.

    `upper` says for each cell whether it is a difference of upper tails, which are the smaller ones
    above 0, or else of lower tails: so nothing cancels.  The result is off by a few ulps of the
    tail that is returned.
    """
    below, above = ndtr(edges), ndtr(-edges)
    masses = np.where(upper, above[:-1] - above[1:], below[1:] - below[:-1])
    return masses, np.where(upper, above[:-1], below[1:])
