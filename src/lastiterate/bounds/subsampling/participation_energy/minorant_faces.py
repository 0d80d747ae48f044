r"""Faces of the convex minorant of a random walk, and what they cost together.

The faces of the minorant of a walk with exchangeable increments are distributed as the cycles of
a uniform random permutation of its steps, with independent increments over them (Abramson
and Pitman 2011).  So if :math:`\Phi_l` is the transform of what a face of l steps costs, that of
the whole walk is given by the exponential formula

.. math:: H_R = [z^R] \exp\Big(\sum_{l \ge 1} \Phi_l z^l / l\Big), \qquad
          R H_R = \sum_{l=1}^R \Phi_l H_{R-l} .
"""

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up
from lastiterate._progress import track

CELLS = 4096
ROUNDING = CELLS * 1e-12  # of all cells together, by the integral in `coefficients`
_POINTS = 4  # of that integral, for each step
_CUT = 1e-16


def face_counts(steps: int, probability: float) -> tuple[NDArray[np.int64], Array, float]:
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


def moments(faces: Array) -> Array:
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
    """The transform of each row's law of cells: one row a length, one column a frequency."""
    steps = masses.shape[0]
    result = np.empty((steps, CELLS // 2 + 1), dtype=np.complex128)
    rows = 512
    for first in track("costs of the faces", range(0, steps, rows)):
        block = slice(first, min(first + rows, steps))
        size = block.stop - first
        place = cells[block] % CELLS + CELLS * np.arange(size)[:, None]
        histogram = np.bincount(
            place.ravel(), weights=masses[block].ravel(), minlength=size * CELLS
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
