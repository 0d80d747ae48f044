r"""A hidden pick: places paid along one direction, and late ones each in a window of its own.

Let :math:`a_j` be vectors, with probability :math:`p_j` each.  What is bounded is the hockey-stick
divergence of :math:`E_j N(a_j, I)` and :math:`E_j N(-a_j, I)`, or N(0, I), in which :math:`a_j` has
the length :math:`m_j` along one direction and, for late places, :math:`\rho_w` along one of several
others, w being the window of j.  With independent standard normal G and :math:`z_w` it is

.. math:: E \big( L(G, z) - \alpha L(-G, -z) \big)_+ , \qquad L(G, z) = \sum_{\rm old} p_j
    e^{m_j G - m_j^2/2} + e^{m G - m^2/2} \sum_w p_w e^{\rho_w z_w - \rho_w^2/2}

and the same with 1 in place of one of the two L.  Given G that is a call function
(`lognormal_differences`).  It does not decrease in G, so that sums over cells of G at their upper
ends lie above it.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, down, ulps, up
from lastiterate.bounds.shuffling.lognormal_differences import DifferenceCalls
from lastiterate.errors import InvalidParameter

_FARTHEST = 9.0  # standard deviations of G
_WIDEST = 0.2  # of epsilon, to both sides
_SUMMED_TO_ONE = 1e-9
_LOWEST = -2.0  # G, from which on thresholds are on the grid,
_MOST_ASKED = 3.0  # if they are at most so many times those in the middle
_LARGEST = 30.0  # standard deviations


class Against(Enum):
    """The two laws compared: for an example that is replaced, or that is in one data set only."""

    MIRRORED = "both moved, in opposite ways"
    STILL = "the first moved, the second not"
    MOVED = "the second moved, the first not"


@dataclass(frozen=True, eq=False)
class Picks:
    """The probabilities of the example's possible positions, and the mu of each.

    Old places have `mus`.  Late ones are paid in windows, of `sizes`, and before their last arrival
    have the mu `earlier`.
    """

    old: Array
    mus: Array
    windows: Array
    sizes: Array
    earlier: float

    def __post_init__(self) -> None:
        every = np.concatenate([self.old, self.windows])
        lengths = np.concatenate([self.mus, self.sizes, [self.earlier]])
        if not (np.all(every >= 0.0) and math.fsum(every) >= 1.0 - _SUMMED_TO_ONE):
            raise InvalidParameter("windows", self.windows, must_be="all that is not old")
        if not (np.all(lengths >= 0.0) and self.windows.sum() > 0.0):
            raise InvalidParameter("sizes", self.sizes, must_be="at least 0, of some places")

    @property
    def largest_mu(self) -> float:
        """Along the one direction."""
        return float(max(self.mus.max(initial=0.0), self.earlier))

    @property
    def too_dear(self) -> bool:
        """Whether anything costs so much that nothing is hidden, and numbers are out of range."""
        return not max(self.largest_mu, float(self.sizes.max())) <= _LARGEST


@dataclass(frozen=True)
class Detail:
    """How finely things are computed."""

    cells: int
    step: float  # of G
    spacing: float  # of the logarithm of kappa


class PicksTogether:
    """The divergence of one pair of laws, in one direction; made for epsilons around one."""

    def __init__(self, picks: Picks, against: Against, epsilon: float, detail: Detail) -> None:
        if picks.too_dear:
            raise InvalidParameter("picks", picks, must_be=f"of costs up to {_LARGEST:g}")
        self._against = against
        self._least, self._most = (1.0 - _WIDEST) * epsilon, (1.0 + _WIDEST) * epsilon
        at = _edges(detail.step)
        self._masses, last = _masses_up_to(at), float(at[-1])
        beyond = picks.old @ ndtr(picks.mus - last) + picks.windows.sum() * ndtr(
            picks.earlier - last
        )
        self._beyond = float(ndtr(-last)) if against is Against.MOVED else float(beyond)
        one, none = np.ones(at.size), np.zeros(at.size)
        ours = (one, none) if against is Against.MOVED else _ratios(picks, at)
        theirs = (one, none) if against is Against.STILL else _ratios(picks, -at)
        # Ours are rounded up and theirs down, by what the rest of the way rounds, too.
        steps = 64.0 + picks.mus.size + 8.0 * _FARTHEST * picks.largest_mu
        steps += 4.0 * picks.largest_mu**2
        self._ours = [up(ratio, ulps(steps)) for ratio in ours]
        self._theirs = [down(ratio, ulps(steps)) for ratio in theirs]
        self._calls = self._tabulated(picks, at, detail)

    def delta(self, epsilon: float) -> float:
        """Rounded up; 1 for epsilons far from that it was made for."""
        if not self._least <= epsilon <= self._most:
            return 1.0
        unit, kappas, thresholds = self._asked(math.exp(epsilon))
        values = unit * self._calls(kappas, thresholds)
        total = float(self._masses @ values) + self._beyond
        return min(up(total, MILLIONS_OF_ROUNDINGS), 1.0)

    def _asked(self, alpha: float) -> tuple[Array, Array, Array]:
        """For every G: what the sum is multiplied by, kappa, and the threshold."""
        (ours, new), (theirs, others) = self._ours, self._theirs
        unit = alpha * others if self._against is Against.MOVED else new
        return unit, alpha * others / unit, (alpha * theirs - ours) / unit

    def _tabulated(self, picks: Picks, at: Array, detail: Detail) -> DifferenceCalls:
        ends = [self._asked(math.exp(epsilon)) for epsilon in (self._least, self._most)]
        largest = np.maximum(ends[0][2], ends[1][2])
        present = picks.windows > 0.0
        weights, sizes = picks.windows[present], picks.sizes[present]
        if self._against is not Against.MIRRORED:
            moved = self._against is Against.STILL
            kappas = np.array([0.0 if moved else 1.0])
            # Thresholds that are never reached need no place on the grid.
            reach = np.array([math.exp(self._most) if moved else 0.0])
            return DifferenceCalls(
                weights, sizes, kappas=kappas, ends=reach, cells=detail.cells, positive=moved
            )
        low = math.log(float(ends[0][1].min()))
        high = math.log(float(ends[1][1].max()))
        count = math.ceil((high - low) / detail.spacing) + 1
        kappas = np.exp(np.linspace(low - ulps(64.0), high + ulps(64.0), max(count, 2)))
        # Kappa is alpha e^(-2 m G), and the threshold falls as G grows; the largest do not count.
        with np.errstate(over="ignore"):  # beyond all of G is the last of it
            where = (self._most - np.log(kappas)) / max(2.0 * picks.earlier, TINY)
        where = np.maximum(where, _LOWEST) if picks.earlier else np.full(kappas.size, _LOWEST)
        reach = np.interp(where, at, largest)
        middle = max(float(np.interp(0.0, at, largest)), 0.0) + picks.windows.sum()
        reach = np.minimum(reach, _MOST_ASKED * middle)
        return DifferenceCalls(weights, sizes, kappas=kappas, ends=reach, cells=detail.cells)


def _edges(step: float) -> Array:
    """The edges of cells of G, which are wide where they hardly matter."""
    return np.concatenate(
        [
            np.linspace(-_FARTHEST, -2.0, 29)[:-1],
            np.arange(-2.0, 8.0, step),
            np.linspace(8.0, _FARTHEST, 11),
        ]
    )


def _masses_up_to(at: Array) -> Array:
    """Normal probabilities of the cells that end at `at`, the first without a start; rounded up."""
    below, above = ndtr(at), ndtr(-at)
    # By the tail that is smaller.
    cells = np.where(at[1:] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    off = ulps(64.0 + 4.0 * at[1:] ** 2) * np.where(at[1:] > 0.0, above[:-1], below[1:])
    return np.concatenate([below[:1], np.maximum(cells, 0.0) + off])


def _ratios(picks: Picks, at: Array) -> tuple[Array, Array]:
    """The likelihood ratios of old places, and of late ones but for their windows."""
    old = np.exp(np.multiply.outer(at, picks.mus) - 0.5 * picks.mus**2) @ picks.old
    return old, np.exp(picks.earlier * at - 0.5 * picks.earlier**2)
