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

Short steps keep a part of earlier noise, at least l' in each step (`shifts.early_shifts`).  Then
a window may contain the participation, and its steps before it count with :math:`l'^{2i}`, i the
number of steps from one to the other.  Every position has a cost of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lastiterate._numerics.powers import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, Array, IntArray, up
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.patterns import Spent

_GROWTH = 2.0  # ratio of the ends of consecutive windows


@dataclass(frozen=True, eq=False)
class EndWindows:
    """Windows of the last steps: window i has the tails from edges[i] to edges[i + 1] - 1.

    Each has `share` of the noise of its steps.  `window_of[k]` is the window in which the
    participation with tails[k] steps after it is shifted away.  A window may also contain it if
    steps lose at most `lost` of earlier noise; None is for windows that contain none.
    """

    edges: IntArray
    share: float
    tails: IntArray
    window_of: IntArray
    lost: float | None = None

    def __post_init__(self) -> None:
        disjoint = self.edges[0] >= 0 and bool(np.all(np.diff(self.edges) > 0))
        if not (disjoint and 0.0 < self.share <= 1.0):
            raise InvalidParameter("edges", self.edges, must_be="increasing, with a share of noise")
        known = np.all((self.window_of >= 0) & (self.window_of < self.edges.size - 1))
        latest = 1 if self.lost is None else 0  # the edge that must not be before a participation
        if not (known and np.all(self.edges[self.window_of + latest] - latest <= self.tails)):
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

    def position_costs(self, gap: float) -> Array:
        """rho of each position in its window, as `costs` if no window contains a position."""
        if self.lost is None:
            return np.asarray(self.costs(gap)[self.window_of])
        return self._costs_in(self.window_of, gap, self.lost)

    def _costs_in(self, windows: IntArray, gap: float, lost: float) -> Array:
        """rho of each position in any window that does not end before it, rounded up."""
        log_c = log_of(gap)
        first, last = self.edges[windows], self.edges[windows + 1] - 1
        since = np.minimum(self.tails, last) - first + 1
        before = np.maximum(last - self.tails, 0)
        scale = np.exp(logs_of_powers(2 * log_c, self.tails - first))
        earlier: Array | float = 0.0
        if lost < 1.0:
            log_kept = log_of(lost)
            earlier = math.exp(2 * log_kept) * sums_of_powers(2 * log_kept, before)
        variances = self.share * (scale * earlier + sums_of_powers(2 * log_c, since))
        return np.asarray(up(np.sqrt(scale / variances), MILLIONS_OF_ROUNDINGS) + TINY)

    def with_least_costs(self, gap: float, preferring_later: float = 1.0) -> EndWindows:
        """Returns these windows, each position in the cheaper of its own and the next later one.

        The later one may be so many times as expensive: it has fewer positions.
        """
        assert self.lost is not None
        own, later = self.window_of, np.maximum(self.window_of - 1, 0)
        costs = self._costs_in(later, gap, self.lost)
        prefers_later = costs < preferring_later * self._costs_in(own, gap, self.lost)
        return replace(self, window_of=np.where(prefers_later, later, own))


def end_windows(tails: IntArray, share: float) -> EndWindows:
    """Windows that double in size with their age; each tail has the oldest window it may use."""
    ends = _doubling(1, int(tails.max()) + 1)
    window_of = np.searchsorted(ends[1:] - 1, tails, side="right") - 1
    return EndWindows(ends[: int(window_of.max()) + 2], share, tails, window_of)


def early_edges(tails: IntArray, *, first: int, most: int) -> IntArray:
    """The edges of windows for short steps: the first has `first` steps, none a tail of `most`."""
    ends = _doubling(max(first, 1), int(tails.max()) + 1)
    return np.unique(np.minimum(ends, max(most, 1)))


def geometric_edges(first: int, last: int) -> IntArray:
    """The edges of windows from `first` steps on, each next about twice as large, up to `last`."""
    first = min(first, last)
    count = max(round(math.log(last / first, _GROWTH)), 0)
    return np.unique(np.append(0, np.rint(np.geomspace(first, last, count + 1)).astype(np.int64)))


def early_windows(
    edges: IntArray,
    tails: IntArray,
    share: float,
    *,
    gap: float,
    lost: float,
    preferring_later: float = 1.0,
) -> EndWindows:
    """Windows for steps that lose at most `lost` of earlier noise; they may contain positions."""
    around = np.minimum(np.searchsorted(edges, tails, side="right"), edges.size - 1) - 1
    windows = EndWindows(edges, share, tails, around, lost)
    return windows.with_least_costs(gap, preferring_later)


def _doubling(first: int, last: int) -> IntArray:
    """Edges 0, first, .., each next about twice as large, up to at least `last`."""
    edges = [0, first]
    while edges[-1] < last:
        edges.append(max(edges[-1] + 1, round(edges[-1] * _GROWTH)))
    return np.array(edges)
