r"""What random participations cost: the law of the convex minorant's energy.

In each of R steps the example takes part with probability p, independently.  With no
contraction, arrivals 1 and noise 1, the least energy is that of the convex minorant of a walk with
exchangeable increments, whose faces are distributed as the cycles of a uniform random
permutation of the steps, with independent increments over them (Abramson and Pitman 2011).  A
face of l steps with N participations costs :math:`N^2/l`, so with :math:`\Phi_l` the transform of
the cost of one face the transform of the energy is

.. math:: H_R = [z^R] \exp\Big(\sum_{l \ge 1} \Phi_l z^l / l\Big), \qquad
          R H_R = \sum_{l=1}^R \Phi_l H_{R-l} .

Soundness.  The cost of a face is rounded up to a grid; binomial tails that are cut, and the
probability that the energy reaches the end of the grid (a Chernoff bound, from the same
recursion with positive terms), are `lost`; so is the rounding of the Fourier transforms.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import gammaln, xlog1py, xlogy

from lastiterate._numerics.exact import Array

_CELLS = 4096
_TAIL = 1e-12
_CUT = 1e-16
_POINTS = 4  # of the Cauchy integral, for each step
_ROUNDING = 1e-12  # of one cell, by that integral


@dataclass(frozen=True, eq=False)
class ParticipationLaw:
    """The energy is at most energies[i] with probability masses[i], but for `lost`."""

    energies: Array
    masses: Array
    lost: float


@lru_cache(maxsize=8)
def participation_law(steps: int, probability: float) -> ParticipationLaw:
    """The law of the least energy over `steps` steps, rounded up."""
    counts, masses, cut = _face_counts(steps, probability)
    lengths = np.arange(1, steps + 1)
    costs = counts.astype(float) ** 2 / lengths[:, None]
    end = _end_of_grid(costs, masses)
    cell = end / _CELLS
    cells = np.minimum(np.ceil(costs / cell), 2.0**40).astype(np.int64)
    transforms = _face_transforms(cells % _CELLS, masses)
    law = fft.irfft(_coefficient(transforms), n=_CELLS)
    lost = cut + _TAIL + _CELLS * _ROUNDING
    law = np.maximum(law, 0.0)
    law /= law.sum()
    # A quotient that rounded down to a whole number of cells is made up for here.
    energies = cell * np.arange(_CELLS, dtype=np.float64) * (1.0 + 1e-14)
    return ParticipationLaw(energies, law, lost)


def _face_counts(steps: int, probability: float) -> tuple[NDArray[np.int64], Array, float]:
    """Participations in a face of each length, their probabilities, and what was cut.

    A face of length l occurs 1/l times on average, so cutting a mass of x from it loses x/l.
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
    # Whatever the window misses, below or above, is lost; what the logarithms of factorials
    # are off by is far less than is lost to the grid.
    missing = np.maximum(1.0 - masses.sum(axis=1), 0.0)
    masses /= np.maximum(masses.sum(axis=1), 1.0)[:, None]
    return counts, masses, float((missing / lengths[:, 0]).sum()) + steps * _CUT


def _end_of_grid(costs: Array, masses: Array) -> float:
    """An energy that is exceeded with probability at most `_TAIL`, by Chernoff's bound."""
    # Paying for each participation alone costs no more than the number of steps.
    best = 1.01 * costs.shape[0] + 1.0
    logs = np.log(np.where(masses > 0.0, masses, 1.0))
    for rate in (0.1, 0.3, 0.6, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0):
        exponents = np.where(masses > 0.0, rate * costs + logs, -math.inf)
        if exponents.max() > 600.0:
            break
        log_moment = math.log(_exponential_formula(np.exp(exponents).sum(axis=1)))
        best = min(best, (log_moment - math.log(_TAIL)) / rate)
    # Rounding up moves the energy by a cell a face; more than 64 faces are rarer than 1e-20.
    return float(best * (1.0 + 1e-9) / (1.0 - 64 / _CELLS))


def _exponential_formula(faces: Array) -> float:
    """[z^R] exp(sum faces_l z^l / l), for positive faces, by its recursion."""
    steps = faces.size
    values = np.empty(steps + 1)
    values[0] = 1.0
    for k in range(1, steps + 1):
        values[k] = faces[:k] @ values[k - 1 :: -1] / k if k > 1 else faces[0]
        if not values[k] < 1e250:
            return math.inf
    return float(values[steps]) * (1.0 + 1e-9)


def _face_transforms(cells: NDArray[np.int64], masses: Array) -> NDArray[np.complex128]:
    """The transform of each face length's cost: one row a length, one column a frequency."""
    steps = masses.shape[0]
    result = np.empty((steps, _CELLS // 2 + 1), dtype=np.complex128)
    rows = 512
    for first in range(0, steps, rows):
        block = slice(first, min(first + rows, steps))
        size = block.stop - first
        place = cells[block] + _CELLS * np.arange(size)[:, None]
        histogram = np.bincount(
            place.ravel(), weights=masses[block].ravel(), minlength=size * _CELLS
        )
        result[block] = fft.rfft(histogram.reshape(size, _CELLS), axis=1)
    return result


def _coefficient(transforms: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """[z^R] exp(sum Phi_l z^l / l) for every frequency, by a Cauchy integral on |z| < 1."""
    steps, frequencies = transforms.shape
    points = fft.next_fast_len(_POINTS * steps)
    radius = 10.0 ** (-14.0 / points)
    weights = radius ** np.arange(1, steps + 1) / np.arange(1, steps + 1)
    turn = np.exp(-2j * np.pi * (np.arange(points) * steps % points) / points)
    result = np.empty(frequencies, dtype=np.complex128)
    rows = max(1, (1 << 22) // points)
    for first in range(0, frequencies, rows):
        block = slice(first, first + rows)
        padded = np.zeros((transforms[:, block].shape[1], points), dtype=np.complex128)
        padded[:, 1 : steps + 1] = (transforms[:, block] * weights[:, None]).T
        values = np.exp(fft.ifft(padded, axis=1, workers=-1) * points)
        result[block] = values @ turn / points
    return np.asarray(result * radius ** (-steps))
