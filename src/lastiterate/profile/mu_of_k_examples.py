"""The sum of several secret draws, each of a Gaussian parameter: the law of mu of several examples.

Given all that chance decides, what k examples are worth is at most the sum of what each is worth
(`profile.group`).  Where they are drawn independently of each other, that sum has a known law.
"""

import math

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile

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
    """On a geometric grid, every level but 0 rounded up."""
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
    """So much more for the largest levels, until all is used up."""
    above = np.minimum(np.cumsum((masses * density)[::-1]), math.fsum(masses))
    return np.diff(above, prepend=0.0)[::-1]
