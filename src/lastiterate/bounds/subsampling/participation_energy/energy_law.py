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

import math
from dataclasses import dataclass
from functools import lru_cache

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

CELLS = 4096
ROUNDING = CELLS * 1e-12  # of all cells together, by the integral in `coefficients`
_POINTS = 4  # of that integral, for each step
_CUT = 1e-16  # rounding of a probability
TAIL = 1e-10  # probability of an energy beyond the grid
_MOST_FACES = 66  # more than 64 are rarer than 1e-20


@dataclass(frozen=True, eq=False)
class ParticipationLaw:
    """A law: energy at most energies[i] with probability masses[i], or anything with `lost`."""

    energies: Array
    masses: Array
    lost: float


@lru_cache(maxsize=8)
def participation_law(steps: int, probability: float) -> ParticipationLaw:
    """The law of the least energy over `steps` steps, rounded up."""
    counts, masses, cut = face_counts(steps, probability)
    costs = counts.astype(float) ** 2 / np.arange(1, steps + 1)[:, None]
    cell = cell_of_grid(largest_cost(costs, masses, np.ones(1)))
    spectrum = transforms(in_cells(costs, cell), masses)
    return law_on_grid(coefficients(spectrum, steps)[0], cell, cut)


def cell_of_grid(end: float) -> float:
    """The cell of a grid for costs up to `end`, with room for rounding each face up."""
    return end / (CELLS - _MOST_FACES)


def largest_cost(costs: Array, masses: Array, others: Array) -> float:
    """A cost of all faces that is exceeded with probability at most `TAIL`, by Chernoff's bound.

    The faces cover all steps but k, with probability others[k].
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
        best = min(best, (math.log(moment) - math.log(TAIL)) / rate)
    return float(up(best, MILLIONS_OF_ROUNDINGS))


def law_on_grid(spectrum: NDArray[np.complex128], cell: float, cut: float) -> ParticipationLaw:
    """The law with this transform; missing mass is lost."""
    masses = scipy.fft.irfft(spectrum, n=CELLS)
    missing = abs(1.0 - float(masses.sum()))
    masses = np.maximum(masses, 0.0)
    # This covers quotients that were rounded down to a whole number of cells.
    energies = up(cell * np.arange(CELLS, dtype=np.float64), TENS_OF_THOUSANDS_OF_ROUNDINGS)
    lost = cut + missing + TAIL + ROUNDING
    return ParticipationLaw(energies, masses / max(masses.sum(), 1.0), min(lost, 1.0))


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
    return counts, masses, float((missing / lengths[:, 0]).sum()) + steps * _CUT


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


def in_cells(costs: Array, cell: float) -> NDArray[np.int64]:
    """Costs in whole cells, rounded up."""
    return np.minimum(np.ceil(costs / cell), 2.0**40).astype(np.int64)


def transforms(cells: NDArray[np.int64], masses: Array) -> NDArray[np.complex128]:
    """The transform of each row's law: one row for each length, one column for each frequency."""
    steps = masses.shape[0]
    result = np.empty((steps, CELLS // 2 + 1), dtype=np.complex128)
    rows = 512
    for first in track("costs of the faces", range(0, steps, rows)):
        block = slice(first, min(first + rows, steps))
        size = block.stop - first
        index = cells[block] % CELLS + CELLS * np.arange(size)[:, None]
        histogram = np.bincount(
            index.ravel(), weights=masses[block].ravel(), minlength=size * CELLS
        )
        result[block] = scipy.fft.rfft(histogram.reshape(size, CELLS), axis=1)
    return result


def coefficients(faces: NDArray[np.complex128], shortest: int) -> NDArray[np.complex128]:
    """[z^k] exp(sum Phi_l z^l / l), one row for each k = R, R-1, .., shortest.

    A Cauchy integral on a circle inside the unit disc, for every frequency.
    """
    steps, frequencies = faces.shape
    points = scipy.fft.next_fast_len(_POINTS * steps)
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
