"""Normal probabilities of cells, computed without cancellation."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array


def normal_cells(edges: Array, upper: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The standard normal probability of each cell between `edges`, and the tail it came from.

    `upper` says for each cell whether it is a difference of upper tails, which are the smaller ones
    above 0, or else of lower tails.  The result is off by a few ulps of the tail that is returned.
    """
    below, above = ndtr(edges), ndtr(-edges)
    masses = np.where(upper, above[:-1] - above[1:], below[1:] - below[:-1])
    return masses, np.where(upper, above[:-1], below[1:])
