r"""Windows at the end of a run, each of which pays late arrivals out of noise of its own.

A share :math:`\theta` of the noise of the last steps is set apart and cut into windows; a late
arrival is paid in one of them, which must not begin before it.  So arrivals paid in different
windows are paid by independent noise, and what one of them leaks tells nothing of the other.
A place of tail k, that is with k steps after it, has in final units the mass :math:`c^k`; the steps
:math:`\tau` of a window W have the variance :math:`\theta c^{2\tau}`, and paid in proportion to
that, an arrival as old as W or older costs at most

.. math:: \rho_W = c^{\max W} \Big/ \sqrt{\textstyle\theta \sum_{\tau \in W} c^{2\tau}}

standard deviations for each unit of it.  All else is left with :math:`1 - \theta` of that noise.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.geometric import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, up
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.sparse_patterns import Spent

_GROWTH = 2.0  # of the ends of windows


@dataclass(frozen=True, eq=False)
class EndWindows:
    """Window i has the tails from edges[i] up to edges[i + 1], and `share` of their noise.

    `chosen[k]` is the window that pays the arrival with tails[k] steps after it.
    """

    edges: IntArray
    share: float
    tails: IntArray
    chosen: IntArray

    def __post_init__(self) -> None:
        disjoint = self.edges[0] >= 0 and bool(np.all(np.diff(self.edges) > 0))
        if not (disjoint and 0.0 < self.share <= 1.0):
            raise InvalidParameter("edges", self.edges, must_be="increasing, with a share of noise")
        known = np.all((self.chosen >= 0) & (self.chosen < self.edges.size - 1))
        if not (known and np.all(self.edges[self.chosen + 1] - 1 <= self.tails)):
            raise InvalidParameter("chosen", self.chosen, must_be="windows after the arrivals")

    @property
    def spent(self) -> Spent:
        """The share of the last steps' noise that is set apart for the windows alone."""
        return Spent(int(self.edges[-1]), self.share)

    def sizes(self, gap: float) -> Array:
        """Standard deviations for each unit of an arrival, by window, rounded up."""
        log_c = log_of(gap)
        counts = np.diff(self.edges)
        masses = np.exp(logs_of_powers(log_c, counts - 1))
        variances = self.share * sums_of_powers(2 * log_c, counts)
        return np.asarray(up(masses / np.sqrt(variances), MILLIONS_OF_ROUNDINGS) + TINY)


def end_windows(tails: IntArray, share: float) -> EndWindows:
    """Windows that grow with their age; each arrival is paid in the oldest that it may use."""
    last, edges = int(tails.max()) + 1, [0, 1]
    while edges[-1] < last:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _GROWTH)))
    ends = np.array(edges)
    chosen = np.searchsorted(ends[1:] - 1, tails, side="right") - 1
    return EndWindows(ends[: int(chosen.max()) + 2], share, tails, chosen)
