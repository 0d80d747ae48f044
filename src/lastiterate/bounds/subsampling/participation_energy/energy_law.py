r"""The law of the least energy of random participations, that of the convex minorant.

In each of R steps the example takes part with probability p, independently.  With no
contraction, arrivals 1 and noise 1, the least energy is that of the convex minorant of a walk with
exchangeable increments: a face of l steps with N participations costs :math:`N^2/l`.

Soundness.  The cost of a face is rounded up to a grid; binomial tails that are cut, and the
probability that the energy reaches the end of the grid (a Chernoff bound, from the same
recursion with positive terms), are `lost`; so is the rounding of the Fourier transforms.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    up,
)
from lastiterate.bounds.subsampling.participation_energy import minorant_faces

TAIL = 1e-10


@dataclass(frozen=True, eq=False)
class ParticipationLaw:
    """The energy is at most energies[i] with probability masses[i].

    This holds except with probability `lost`.
    """

    energies: Array
    masses: Array
    lost: float


@lru_cache(maxsize=8)
def participation_law(steps: int, probability: float) -> ParticipationLaw:
    """The law of the least energy over `steps` steps, rounded up."""
    counts, masses, cut = minorant_faces.face_counts(steps, probability)
    costs = counts.astype(float) ** 2 / np.arange(1, steps + 1)[:, None]
    cell = cell_of_grid(largest_cost(costs, masses, np.ones(1)))
    spectrum = minorant_faces.transforms(minorant_faces.in_cells(costs, cell), masses)
    return law_on_grid(minorant_faces.coefficients(spectrum, steps)[0], cell, cut)


def cell_of_grid(end: float) -> float:
    """Cells for costs up to `end`, with room for rounding each face up.

    More than 64 faces are rarer than 1e-20.
    """
    return end / (minorant_faces.CELLS - 66)


def largest_cost(costs: Array, masses: Array, others: Array) -> float:
    """A cost of all faces that is exceeded with probability at most `TAIL`, by Chernoff's bound.

    The faces cover all steps but k, with others[k] the probability of whatever happens in those.
    """
    steps = costs.shape[0]
    # Paying for each participation alone costs no more than the number of steps.
    best = 1.01 * steps + 1.0
    logs = np.log(masses, where=masses > 0.0, out=np.full(masses.shape, -np.inf))
    for rate in (0.1, 0.3, 0.6, 1.0, 1.8, 3.2, 5.6, 10.0, 18.0):
        exponents = rate * costs + logs
        if exponents.max() > 600.0:
            break
        moments = minorant_faces.moments(np.exp(exponents).sum(axis=1))
        if not moments[-1] < math.inf:
            break
        moment = up(float(others @ moments[::-1][: others.size]), MILLIONS_OF_ROUNDINGS)
        best = min(best, (math.log(moment) - math.log(TAIL)) / rate)
    return float(up(best, MILLIONS_OF_ROUNDINGS))


def law_on_grid(spectrum: NDArray[np.complex128], cell: float, cut: float) -> ParticipationLaw:
    """The law that has this transform; whatever it lacks is lost."""
    masses = scipy.fft.irfft(spectrum, n=minorant_faces.CELLS)
    missing = abs(1.0 - float(masses.sum()))
    masses = np.maximum(masses, 0.0)
    # A quotient that rounded down to a whole number of cells is made up for here.
    energies = up(
        cell * np.arange(minorant_faces.CELLS, dtype=np.float64), TENS_OF_THOUSANDS_OF_ROUNDINGS
    )
    lost = cut + missing + TAIL + minorant_faces.ROUNDING
    return ParticipationLaw(energies, masses / max(masses.sum(), 1.0), min(lost, 1.0))
