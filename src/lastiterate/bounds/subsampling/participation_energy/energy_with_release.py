r"""The law of an upper bound on the energy of participations with noise on release.

The release counts as h steps without participations.  Faces of the convex minorant above a slope g
are steep: they cover the last k steps, with N participations.  The energy is at most

.. math:: \sum_{\text{flat faces}} N^2/l + \min(g^2 k + (N - g k)^2/h, N)

(`docs/tightness.md#participation-energy`).  The law of the steep part is computed step by step,
that of the flat part by the exponential formula restricted to :math:`N \le g l`.  One set of
transforms serves every h for which g is chosen.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array, up
from lastiterate.bounds.subsampling.participation_energy import energy_law
from lastiterate.bounds.subsampling.participation_energy.energy_law import (
    TAIL,
    ParticipationLaw,
    cell_of_grid,
    largest_cost,
    law_on_grid,
    participation_law,
)
from lastiterate.errors import NumericalFailure

_MOST_STEEP = 4000  # steps
# Shares of the run's noise in all noise, and slopes above the mean relative to it.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_SLOPES = [0.05 * 1.8**k for k in range(35)]
_STEEP_FOLDS = 28.0  # longer steep faces are rarer than e^-28
_BALANCE = 2.8  # of the excess left to the release and its slope, by trial


class _Slope(NamedTuple):
    """A slope, the longest steep faces, and the least release for which the slope is chosen."""

    slope: float
    longest: int
    least: float


def law_with_release(steps: int, probability: float, release_in_steps: float) -> ParticipationLaw:
    """The law of the energy over `steps` steps and a release worth some more, rounded up."""
    chosen = _slope(steps, probability, release_in_steps)
    if chosen is None:
        return participation_law(steps, probability)
    parts = _parts(steps, probability, chosen)
    costs = _steep_costs(parts.steep, chosen.slope, release_in_steps)
    spectrum = energy_law.transforms(energy_law.in_cells(costs, parts.cell), parts.steep)
    return law_on_grid((spectrum * parts.flat).sum(axis=0), parts.cell, parts.cut + TAIL)


def _decay(probability: float, slope: float) -> float:
    """The rate at which large excesses over a slope become rare: E exp(rate (V - slope)) = 1."""

    def excess(rate: float) -> float:
        return math.log1p(probability * math.expm1(rate)) - rate * slope

    high = 1.0
    while excess(high) < 0.0 and high < 600.0:
        high *= 2.0
    return float(scipy.optimize.brentq(excess, 1e-9, high)) if excess(high) > 0.0 else high


def _slope(steps: int, probability: float, release_in_steps: float) -> _Slope | None:
    """A slope with an excess that the release hides well; None if the release is not used."""
    if steps <= _MOST_STEEP:
        for share in _SHARES:  # one chord is then near the best
            if release_in_steps >= steps * (1.0 / share - 1.0):
                slope = without_ties(steps, probability * share)
                return _Slope(slope, steps, steps * (1.0 / share - 1.0))
    for relative in _SLOPES:
        slope = probability * (1.0 + relative)
        if slope >= 0.9:
            return None
        least = _BALANCE / (slope * _decay(probability, slope))
        longest = _longest_steep(steps, probability, slope)
        if release_in_steps >= least and longest <= _MOST_STEEP:
            return _Slope(without_ties(steps, slope), longest, least)
    return None


def without_ties(steps: int, slope: float) -> float:
    """A slope near this one that no face has, so that rounding cannot confuse flat and steep."""
    lengths = np.arange(1, steps + 1)
    for _ in range(1000):
        counts = np.maximum(np.rint(slope * lengths), 1.0)
        if np.min(np.abs(slope * lengths - counts)) > 1e-9:
            return slope
        slope = up(slope, 1e-7)
    raise NumericalFailure(f"no slope near {slope!r} is free of ties over {steps} steps.")


def _longest_steep(steps: int, probability: float, slope: float) -> int:
    """Steps that steep faces do not exceed except with a probability of about e^-28."""
    rate = slope * math.log(slope / probability)
    rate += (1.0 - slope) * math.log((1.0 - slope) / (1.0 - probability))
    return min(steps, math.ceil(_STEEP_FOLDS / max(rate, 1e-12)))


@dataclass(frozen=True, eq=False)
class _Parts:
    """Probabilities of N participations in k steep steps, and transforms of the R - k flat ones."""

    steep: Array
    flat: NDArray[np.complex128]
    cell: float
    cut: float


@lru_cache(maxsize=4)
def _parts(steps: int, probability: float, chosen: _Slope) -> _Parts:
    slope, longest, least = chosen
    steep = _steep_masses(longest, probability, slope)
    counts, masses, cut = energy_law.face_counts(steps, probability)
    lengths = np.arange(1, steps + 1)[:, None]
    masses = np.where(counts <= slope * lengths, masses, 0.0)
    costs = counts.astype(float) ** 2 / lengths
    # The least release for which this slope is chosen has the largest costs.
    flat_end = largest_cost(costs, masses, steep.sum(axis=1))
    steep_end = _quantile(_steep_costs(steep, slope, least), steep)
    cell = cell_of_grid(flat_end + steep_end)
    spectrum = energy_law.transforms(energy_law.in_cells(costs, cell), masses)
    return _Parts(steep, energy_law.coefficients(spectrum, steps - longest), cell, cut)


def _steep_masses(longest: int, probability: float, slope: float) -> Array:
    """[k, N]: the probability that N_j > slope j for all j <= k, and N_k = N."""
    mean = max(slope, probability) * longest
    most = min(longest, math.ceil(mean + 12 * math.sqrt(mean) + 60))
    counts = np.arange(most + 1)
    masses = np.zeros((longest + 1, most + 1))
    masses[0, 0] = 1.0
    for k in range(1, longest + 1):
        row = masses[k - 1] * (1.0 - probability)
        row[1:] += masses[k - 1, :-1] * probability
        masses[k] = np.where(counts > slope * k, row, 0.0)
    return masses


def _quantile(costs: Array, masses: Array) -> float:
    """A cost that is exceeded with probability at most `TAIL`."""
    order = np.argsort(costs, axis=None)[::-1]
    exceeded = np.cumsum(masses.ravel()[order]) <= 0.5 * TAIL
    return float(costs.ravel()[order][np.count_nonzero(exceeded)])


def _steep_costs(steep: Array, slope: float, release_in_steps: float) -> Array:
    lengths = np.arange(steep.shape[0])[:, None]
    counts = np.arange(steep.shape[1], dtype=np.float64)
    excess = np.maximum(counts - slope * lengths, 0.0)
    # The second term shifts each participation as it comes.
    return np.minimum(slope**2 * lengths + excess**2 / release_in_steps, counts)
