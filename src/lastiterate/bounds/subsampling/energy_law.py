r"""The law of the least energy of random participations without contraction.

In each of R steps the example takes part with probability p, independently, with sensitivity and
noise 1.  The energy is the sum over the faces of a convex minorant, :math:`N^2/l` for N
participations in l steps.  If :math:`\Phi_l` is the transform of the cost of a face of l steps,
that of all is

.. math:: H_R = [z^R] \exp\Big(\sum_{l \ge 1} \Phi_l z^l / l\Big), \qquad
          R H_R = \sum_{l=1}^R \Phi_l H_{R-l}

(`docs/tightness.md#participation-energy`).  The cost of a face is rounded up to a grid.  Truncated
binomial tails, the probability of an energy beyond the grid (by Chernoff's bound, from the
recursion), and the rounding of the Fourier transforms are `lost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    Array,
    up,
)
from lastiterate._progress import track
from lastiterate.errors import NumericalFailure

_CELLS = 4096
_ROUNDING = _CELLS * 1e-12  # of all cells together, by the integral in `coefficients`
_POINTS_IN_STEP = 4  # of that integral, for each step
_PROBABILITY_ROUNDING = 1e-16
_TAIL_PROBABILITY = 1e-10  # probability of an energy beyond the grid
_MOST_FACES = 66  # more than 64 are rarer than 1e-20

# Faces that the release shifts.
_MOST_STEEP_STEPS = 4000
# Shares of the run's noise in all noise, and slopes above the mean relative to it.
_NOISE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_RELATIVE_SLOPES = [0.05 * 1.8**k for k in range(35)]
_STEEP_FOLDS = 28.0  # longer steep faces are rarer than e^-28
_EXCESS_BALANCE = 2.8  # of the excess left to the release and its slope, by trial


@dataclass(frozen=True, eq=False)
class ParticipationLaw:
    """A law: energy at most energies[i] with probability masses[i], or anything with `lost`."""

    energies: Array
    masses: Array
    lost: float


def law_with_release(steps: int, probability: float, release_in_steps: float) -> ParticipationLaw:
    r"""The law of the energy over `steps` steps and a release worth some more, rounded up.

    The release counts as h steps without participations.  Faces of the convex minorant above a
    slope g are steep: they cover the last k steps, with N participations.  The energy is at most

    .. math:: \sum_{\text{flat faces}} N^2/l + \min(g^2 k + (N - g k)^2/h, N)

    (`docs/tightness.md#participation-energy`).  The law of the steep part is computed step by step,
    that of the flat part by the exponential formula restricted to :math:`N \le g l`.  One set of
    transforms serves every h for which g is chosen.
    """
    chosen = _slope(steps, probability, release_in_steps)
    if chosen is None:
        return participation_law(steps, probability)
    parts = _face_parts(steps, probability, chosen)
    costs = _steep_costs(parts.steep, chosen.slope, release_in_steps)
    spectrum = transforms(in_cells(costs, parts.cell), parts.steep)
    return law_on_grid(
        (spectrum * parts.flat).sum(axis=0), parts.cell, parts.cut + _TAIL_PROBABILITY
    )


@lru_cache(maxsize=8)
def participation_law(steps: int, probability: float) -> ParticipationLaw:
    """The law of the least energy over `steps` steps, rounded up."""
    counts, masses, cut = face_counts(steps, probability)
    costs = counts.astype(float) ** 2 / np.arange(1, steps + 1)[:, None]
    cell = cell_of_grid(largest_cost(costs, masses, np.ones(1)))
    spectrum = transforms(in_cells(costs, cell), masses)
    return law_on_grid(coefficients(spectrum, steps)[0], cell, cut)


class _Slope(NamedTuple):
    """A slope, the longest steep faces, and the least release for which the slope is chosen."""

    slope: float
    longest: int
    least: float


def _slope(steps: int, probability: float, release_in_steps: float) -> _Slope | None:
    """A slope with an excess that the release hides well; None if the release is not used."""
    if steps <= _MOST_STEEP_STEPS:
        for share in _NOISE_SHARES:  # one chord is then near the best
            if release_in_steps >= steps * (1.0 / share - 1.0):
                slope = without_ties(steps, probability * share)
                return _Slope(slope, steps, steps * (1.0 / share - 1.0))
    for relative in _RELATIVE_SLOPES:
        slope = probability * (1.0 + relative)
        if slope >= 0.9:
            return None
        least = _EXCESS_BALANCE / (slope * _decay(probability, slope))
        longest = _longest_steep(steps, probability, slope)
        if release_in_steps >= least and longest <= _MOST_STEEP_STEPS:
            return _Slope(without_ties(steps, slope), longest, least)
    return None


def _decay(probability: float, slope: float) -> float:
    """The rate at which large excesses over a slope become rare: E exp(rate (V - slope)) = 1."""

    def excess(rate: float) -> float:
        return math.log1p(probability * math.expm1(rate)) - rate * slope

    high = 1.0
    while excess(high) < 0.0 and high < 600.0:
        high *= 2.0
    return float(scipy.optimize.brentq(excess, 1e-9, high)) if excess(high) > 0.0 else high


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
class _FaceParts:
    """Probabilities of N participations in k steep steps, and transforms of the R - k flat ones."""

    steep: Array
    flat: NDArray[np.complex128]
    cell: float
    cut: float


@lru_cache(maxsize=4)
def _face_parts(steps: int, probability: float, chosen: _Slope) -> _FaceParts:
    slope, longest, least = chosen
    steep = _steep_masses(longest, probability, slope)
    counts, masses, cut = face_counts(steps, probability)
    lengths = np.arange(1, steps + 1)[:, None]
    masses = np.where(counts <= slope * lengths, masses, 0.0)
    costs = counts.astype(float) ** 2 / lengths
    # The least release for which this slope is chosen has the largest costs.
    flat_end = largest_cost(costs, masses, steep.sum(axis=1))
    steep_end = _quantile(_steep_costs(steep, slope, least), steep)
    cell = cell_of_grid(flat_end + steep_end)
    spectrum = transforms(in_cells(costs, cell), masses)
    return _FaceParts(steep, coefficients(spectrum, steps - longest), cell, cut)


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


def _steep_costs(steep: Array, slope: float, release_in_steps: float) -> Array:
    lengths = np.arange(steep.shape[0])[:, None]
    counts = np.arange(steep.shape[1], dtype=np.float64)
    excess = np.maximum(counts - slope * lengths, 0.0)
    # The second term shifts each participation as it comes.
    return np.minimum(slope**2 * lengths + excess**2 / release_in_steps, counts)


def _quantile(costs: Array, masses: Array) -> float:
    """A cost that is exceeded with probability at most `_TAIL_PROBABILITY`."""
    order = np.argsort(costs, axis=None)[::-1]
    exceeded = np.cumsum(masses.ravel()[order]) <= 0.5 * _TAIL_PROBABILITY
    return float(costs.ravel()[order][np.count_nonzero(exceeded)])


def face_counts(steps: int, probability: float) -> tuple[NDArray[np.int64], Array, float]:
    """Participations in a face of each length, their probabilities, and the truncated mass.

    A face of length l occurs 1/l times on average, so truncating a mass of x loses x/l.
    """
    lengths = np.arange(1, steps + 1)[:, None]
    mean = lengths * probability
    spread = np.sqrt(2 * 38 * (mean * (1 - probability) + 38)) + 2
    low = np.floor(np.maximum(mean - spread, 0.0)).astype(np.int64)
    width = int(np.ceil(2 * spread[-1, 0])) + 2
    counts = low + np.arange(min(width, steps + 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = gammaln(lengths + 1) - gammaln(counts + 1) - gammaln(lengths - counts + 1)
        logs += xlogy(counts, probability) + xlog1py(lengths - counts, -probability)
    masses = np.where(counts <= lengths, np.exp(np.where(counts <= lengths, logs, 0.0)), 0.0)
    # Errors of the logarithms of factorials are far smaller than those of the grid.
    missing = np.maximum(1.0 - masses.sum(axis=1), 0.0)
    masses /= np.maximum(masses.sum(axis=1), 1.0)[:, None]
    return counts, masses, float((missing / lengths[:, 0]).sum()) + steps * _PROBABILITY_ROUNDING


def largest_cost(costs: Array, masses: Array, others: Array) -> float:
    """A cost of all faces that is exceeded with probability at most `_TAIL_PROBABILITY`.

    It follows from Chernoff's bound.  The faces cover all steps but k, with probability others[k].
    """
    steps = costs.shape[0]
    # Shifting each participation on its own costs no more than the number of steps.
    best = 1.01 * steps + 1.0
    logs = np.log(masses, where=masses > 0.0, out=np.full(masses.shape, -np.inf))
    for rate in (0.1, 0.3, 0.6, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0):
        exponents = rate * costs + logs
        if exponents.max() > 600.0:
            break
        moments = exponential_formula(np.exp(exponents).sum(axis=1))
        if not moments[-1] < math.inf:
            break
        moment = up(float(others @ moments[::-1][: others.size]), MILLIONS_OF_ROUNDINGS)
        best = min(best, (math.log(moment) - math.log(_TAIL_PROBABILITY)) / rate)
    return float(up(best, MILLIONS_OF_ROUNDINGS))


def exponential_formula(faces: Array) -> Array:
    """[z^k] exp(sum faces_l z^l / l) for k = 0..R and faces >= 0, rounded up; inf if huge."""
    steps = faces.size
    values = np.empty(steps + 1)
    values[0] = 1.0
    for k in range(1, steps + 1):
        values[k] = faces[:k] @ values[k - 1 :: -1] / k if k > 1 else faces[0]
        if not values[k] < 1e250:
            return np.full(steps + 1, np.inf)
    return up(values, MILLIONS_OF_ROUNDINGS)


def cell_of_grid(end: float) -> float:
    """The cell of a grid for costs up to `end`, with room for rounding each face up."""
    return end / (_CELLS - _MOST_FACES)


def in_cells(costs: Array, cell: float) -> NDArray[np.int64]:
    """Costs in whole cells, rounded up."""
    return np.minimum(np.ceil(costs / cell), 2.0**40).astype(np.int64)


def transforms(cells: NDArray[np.int64], masses: Array) -> NDArray[np.complex128]:
    """The transform of each row's law: one row for each length, one column for each frequency."""
    steps = masses.shape[0]
    result = np.empty((steps, _CELLS // 2 + 1), dtype=np.complex128)
    rows = 512
    for first in track("costs of the faces", range(0, steps, rows)):
        block = slice(first, min(first + rows, steps))
        size = block.stop - first
        index = cells[block] % _CELLS + _CELLS * np.arange(size)[:, None]
        histogram = np.bincount(
            index.ravel(), weights=masses[block].ravel(), minlength=size * _CELLS
        )
        result[block] = scipy.fft.rfft(histogram.reshape(size, _CELLS), axis=1)
    return result


def coefficients(faces: NDArray[np.complex128], shortest: int) -> NDArray[np.complex128]:
    """[z^k] exp(sum Phi_l z^l / l), one row for each k = R, R-1, .., shortest.

    It is computed as a Cauchy integral on a circle inside the unit disc, for every frequency.
    """
    steps, frequencies = faces.shape
    points = scipy.fft.next_fast_len(_POINTS_IN_STEP * steps)
    radius = 10.0 ** (-14.0 / points)
    weights = radius ** np.arange(1, steps + 1) / np.arange(1, steps + 1)
    powers = np.arange(steps, shortest - 1, -1)
    turn = np.exp(-2j * np.pi * (np.arange(points) * steps % points) / points)
    result = np.empty((powers.size, frequencies), dtype=np.complex128)
    rows = max(1, (1 << 22) // points)
    for first in track("law of the energy", range(0, frequencies, rows)):
        block = slice(first, first + rows)
        padded = np.zeros((faces[:, block].shape[1], points), dtype=np.complex128)
        padded[:, 1 : steps + 1] = (faces[:, block] * weights[:, None]).T
        values = np.exp(scipy.fft.ifft(padded, axis=1, workers=-1, overwrite_x=True) * points)
        if powers.size == 1:
            result[0, block] = values @ turn
        else:
            result[:, block] = scipy.fft.fft(values, axis=1, workers=-1, overwrite_x=True)[
                :, powers
            ].T
    return np.asarray(result / points * (radius ** -powers.astype(float))[:, None])


def law_on_grid(spectrum: NDArray[np.complex128], cell: float, cut: float) -> ParticipationLaw:
    """The law with this transform; missing mass is lost."""
    masses = scipy.fft.irfft(spectrum, n=_CELLS)
    missing = abs(1.0 - float(masses.sum()))
    masses = np.maximum(masses, 0.0)
    # This covers quotients that were rounded down to a whole number of cells.
    energies = up(cell * np.arange(_CELLS, dtype=np.float64), TENS_OF_THOUSANDS_OF_ROUNDINGS)
    lost = cut + missing + _TAIL_PROBABILITY + _ROUNDING
    return ParticipationLaw(energies, masses / max(masses.sum(), 1.0), min(lost, 1.0))
