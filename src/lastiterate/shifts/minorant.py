r"""The cheapest shifts that make up for all sensitivities, in final units.

Step k adds a distance (its mass) :math:`m_k \ge 0` that must be removed at step k or later, by
shifts :math:`x_j`; a shift :math:`x_j` at step j costs :math:`x_j^2 / v_j`.

.. math:: \min \sum_j x_j^2 / v_j \quad\text{subject to}\quad
          \sum_{j \ge k} x_j \ge \sum_{j \ge k} m_j \text{ for every } k .

The optimum is the greatest convex minorant of the points
:math:`(\sum_{j \le k} v_j, \sum_{j \le k} m_j)`: its slopes :math:`x_j / v_j` are the
increasing isotonic regression of :math:`m / v` with weights v.  Steps without mass extend the
block of the participation before them, so only participations are regressed.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.isotonic import first_of_pools
from lastiterate._numerics.rounding import (
    THOUSANDS_OF_ROUNDINGS,
    Array,
    roundings,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.errors import NumericalFailure

# Variances below this are treated as no noise at all: quotients by them could overflow.
_LEAST_VARIANCE = 1e-290
_LARGEST_SHORTFALL = 1e-6
_LEAST_CHORD_STEPS = 4096
_CHORD_PROBES = 64

# The cost of any mass above 0 at the least, since smaller energies underflow to 0.
LEAST_MU = 1e-150


@dataclass(frozen=True)
class Minorant:
    """Blocks of steps whose shifts have a common slope, from the first participation to the end.

    `energy` is an upper bound: it belongs to shifts that were checked to cover every mass, after
    scaling by `scale` >= 1 to make up for rounding.
    """

    energy: float
    block_starts: NDArray[np.intp]
    block_slopes: Array
    block_energies: Array
    scale: float
    postponed: bool = False  # whether a mass had to wait for noise beyond the next participation

    def slopes(self, steps: int) -> Array:
        """x_k / v_k for each of `steps` steps; 0 before the first participation."""
        if not self.block_starts.size:
            return np.zeros(steps)
        lengths = np.diff(self.block_starts, append=steps)
        before = np.zeros(self.block_starts[0])
        return np.concatenate([before, np.repeat(self.block_slopes * self.scale, lengths)])


def convex_minorant(masses: Array, variances: Array) -> Minorant:
    """The minorant with the least energy for these masses and variances; inf if there is none."""
    count = np.count_nonzero(masses)
    if count == 0:
        return Minorant(0.0, np.empty(0, np.intp), np.empty(0), np.empty(0), 1.0)
    if count == masses.size:
        return sparse_minorant(None, masses, variances)
    steps = np.flatnonzero(masses)
    return sparse_minorant(steps, masses[steps], variances)


def sparse_minorant(steps: NDArray[np.intp] | None, mass: Array, variances: Array) -> Minorant:
    """The minorant, given the steps (None: all) with masses > 0, in order, and these masses."""
    variance = variances if steps is None else np.add.reduceat(variances, steps)
    postponed = False
    if not variance.min() > _LEAST_VARIANCE:
        noisy, mass, variance = _postpone_without_noise(mass, variance)
        if not noisy.size:
            infinite = np.array([math.inf])
            return Minorant(math.inf, np.zeros(1, np.intp), infinite, infinite, 1.0)
        postponed = noisy.size < variances.size
        steps = noisy if steps is None else steps[noisy]
    first = np.zeros(1, np.intp)
    scale = math.inf
    if mass.size == 1 or _one_chord_may_do(mass, variance):
        scale = _shortfall(mass, variance, first)
    if not scale <= 1.0 + ulps(16 * roundings(mass.size)):
        first = first_of_pools(mass, variance)
        scale = _shortfall(mass, variance, first)
    if not scale <= 1.0 + _LARGEST_SHORTFALL:
        raise NumericalFailure(f"the shifts fall short of the sensitivities by a factor {scale!r}")
    block_mass = np.add.reduceat(mass, first)
    slopes = block_mass / np.add.reduceat(variance, first)
    energies = block_mass * slopes * scale**2
    total = up(float(energies.sum()), ulps(2 * roundings(variances.size)))
    if math.isnan(total):
        raise NumericalFailure("the least energy came out as nan")
    starts = first if steps is None else steps[first]
    return Minorant(total, starts, slopes, energies, scale, postponed)


def _one_chord_may_do(mass: Array, variance: Array) -> bool:
    """Whether a single chord covers the masses from each of some steps on.

    Long runs that contract often need no regression; this takes two sums to tell.
    """
    if mass.size < _LEAST_CHORD_STEPS:
        return False
    some = np.linspace(0, mass.size, _CHORD_PROBES, endpoint=False).astype(np.intp)
    needed, room = (suffix_sums(np.add.reduceat(x, some)) for x in (mass, variance))
    with np.errstate(over="ignore"):
        here, most = needed * room[0], up(needed[0] * room, THOUSANDS_OF_ROUNDINGS)
    return bool(np.all((here <= most) & np.isfinite(here)))


def _shortfall(mass: Array, variance: Array, first: NDArray[np.intp]) -> float:
    """The factor by which the shifts of these blocks must grow to cover the masses from each on.

    Shifts and masses are summed only from where the sum of their differences says, rightly or by
    rounding, that the shifts are too small.
    """
    slopes = np.add.reduceat(mass, first) / np.add.reduceat(variance, first)
    shifts = np.repeat(slopes, np.diff(first, append=mass.size))
    np.multiply(shifts, variance, out=shifts)
    short = np.flatnonzero(suffix_sums(mass - shifts) > 0.0)
    ratio = 1.0
    if short.size:
        short = short if short[0] == 0 else np.concatenate([[0], short])
        needed, covered = (suffix_sums(np.add.reduceat(x, short)) for x in (mass, shifts))
        ratio = max(1.0, float((needed / covered).max()))
    # The sums that were left out may be off by their own rounding.
    return up(ratio, ulps(8 * roundings(mass.size)))


def _postpone_without_noise(mass: Array, variance: Array) -> tuple[NDArray[np.intp], Array, Array]:
    """The masses with those that meet no noise before the next participation moved on to it.

    The first of the three are the participations that remain: none if the last meets no noise.
    """
    noisy = np.flatnonzero(variance > _LEAST_VARIANCE)
    at = np.searchsorted(noisy, np.arange(mass.size))
    moved = np.zeros(noisy.size + 1)
    np.add.at(moved, at, mass)
    if moved[noisy.size] > 0.0:
        return noisy[:0], mass, variance
    return noisy, moved[: noisy.size], variance[noisy]
