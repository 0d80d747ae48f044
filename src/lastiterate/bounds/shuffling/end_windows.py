r"""Disjoint windows of the last steps, each of which hides late participations by noise of its own.

A share :math:`\theta` of the noise of the last steps is reserved and divided into windows.  The
last participation of a late position is shifted away inside one window, which must not begin
before that participation.  Shifts in different windows use independent noise.

Let c be the contraction of a step, and let the *tail* of a position be the number of steps after
its last participation.  In units of the end of the run, a participation with tail k has size
:math:`c^k`, and a step with tail :math:`\tau` in a window W has the reserved variance
:math:`\theta c^{2\tau}`.  Shifts in proportion to that variance cost a participation that is not
later than W at most

.. math:: \rho_W = c^{\max W} \Big/ \sqrt{\textstyle\theta \sum_{\tau \in W} c^{2\tau}}

standard deviations for each unit of per-step sensitivity.  Everything else has a share
:math:`1 - \theta` of the noise of these steps.  The theorem that uses the windows is in
`docs/tightness.md#joint-transport`.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.geometric import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, up
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.sparse_patterns import Spent

_GROWTH = 2.0  # ratio of the ends of consecutive windows


@dataclass(frozen=True, eq=False)
class EndWindows:
    """Windows of the last steps: window i has the tails from edges[i] to edges[i + 1] - 1.

    Each has `share` of the noise of its steps.  `window_of[k]` is the window in which the
    participation with tails[k] steps after it is shifted away.
    """

    edges: IntArray
    share: float
    tails: IntArray
    window_of: IntArray

    def __post_init__(self) -> None:
        disjoint = self.edges[0] >= 0 and bool(np.all(np.diff(self.edges) > 0))
        if not (disjoint and 0.0 < self.share <= 1.0):
            raise InvalidParameter("edges", self.edges, must_be="increasing, with a share of noise")
        known = np.all((self.window_of >= 0) & (self.window_of < self.edges.size - 1))
        if not (known and np.all(self.edges[self.window_of + 1] - 1 <= self.tails)):
            raise InvalidParameter(
                "window_of", self.window_of, must_be="windows after the participations"
            )

    @property
    def reserved(self) -> Spent:
        """The share of the last steps' noise that nothing else may use."""
        return Spent(int(self.edges[-1]), self.share)

    def costs(self, gap: float) -> Array:
        """rho of each window for contraction 1 - `gap` and sensitivity and noise 1, rounded up."""
        log_c = log_of(gap)
        counts = np.diff(self.edges)
        masses = np.exp(logs_of_powers(log_c, counts - 1))
        variances = self.share * sums_of_powers(2 * log_c, counts)
        return np.asarray(up(masses / np.sqrt(variances), MILLIONS_OF_ROUNDINGS) + TINY)


def end_windows(tails: IntArray, share: float) -> EndWindows:
    """Windows that double in size with their age; each tail has the oldest window it may use."""
    last, edges = int(tails.max()) + 1, [0, 1]
    while edges[-1] < last:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _GROWTH)))
    ends = np.array(edges)
    window_of = np.searchsorted(ends[1:] - 1, tails, side="right") - 1
    return EndWindows(ends[: int(window_of.max()) + 2], share, tails, window_of)
