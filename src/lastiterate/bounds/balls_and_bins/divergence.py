r"""The hockey-stick divergence of two mixtures of Gaussians over a secret position.

Component j has probability :math:`p_j` and mean :math:`a_j`.  The divergence of
:math:`E_j N(a_j, I)` and :math:`E_j N(-a_j, I)`, or N(0, I), is bounded, where :math:`a_j` has the
length :math:`m_j` along one direction and, for late positions, also :math:`\rho_j` along the
direction of one of several windows w.  With independent standard normal G and :math:`z_w` it is

.. math:: E \big( L(G, z) - \alpha L(-G, -z) \big)_+ , \qquad L(G, z) = \sum_j p_j
    e^{m_j G - m_j^2/2} + \sum_i q_i e^{n_i G - n_i^2/2} \sum_{w, j} p_j
    e^{\rho_j z_w - \rho_j^2/2} ,

the first sum over positions outside windows, the last over those in windows, whose earlier
participations cost :math:`n_i` with probability :math:`q_i`; or the same with 1 for one of the two
L.  Given G that is a call function (`shuffling.lognormal`).  It does not decrease in G, so sums
over cells of G, with the value at the upper end of each cell, lie above it.
`docs/tightness.md#balls-and-bins` says why a run is no easier to distinguish than these mixtures.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    down,
    ulps,
    up,
)
from lastiterate.bounds.shuffling.lognormal import DifferenceCalls
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import normal_cells

_LARGEST_G = 9.0  # standard deviations
_COMPUTED_SHARE = 0.2  # share of its epsilon, to both sides, for which a divergence is computed
_ROUNDED_ONE = down(1.0, MILLIONS_OF_ROUNDINGS)  # least sum of probabilities
_LEAST_G = -2.0  # from which on thresholds are on the grid,
_LARGEST_THRESHOLD = 3.0  # unless they exceed so many times that at G = 0
_LARGEST_MU = 30.0  # standard deviations; above it numbers are out of range


class MixturePair(Enum):
    """The pair of laws: for an example that is replaced, or that is in one data set only."""

    MIRRORED = "a mixture against its mirror image"
    MIXTURE_FIRST = "a mixture against N(0, I)"
    MIXTURE_SECOND = "N(0, I) against a mixture"


@dataclass(frozen=True, eq=False)
class PositionMixture:
    """The components of the mixture: probabilities and lengths of means.

    Positions outside windows have `weights` and `mus`.  Late positions have `window_weights` and
    `window_costs`; those with the same `window_of` share a window, and without it none do.  What
    precedes their last participation is independent of it, and has the mus `earlier_mus` with
    probabilities `earlier_weights`.
    """

    weights: Array
    mus: Array
    window_weights: Array
    window_costs: Array
    earlier_mus: Array
    earlier_weights: Array
    window_of: IntArray | None = None

    def __post_init__(self) -> None:
        every = np.concatenate([self.weights, self.window_weights])
        lengths = np.concatenate([self.mus, self.window_costs, self.earlier_mus])
        if not (np.all(every >= 0.0) and math.fsum(every) >= _ROUNDED_ONE):
            raise InvalidParameter(
                "window_weights", self.window_weights, must_be="probabilities that sum to 1"
            )
        earlier = self.earlier_weights
        if not (np.all(earlier >= 0.0) and math.fsum(earlier) >= _ROUNDED_ONE):
            raise InvalidParameter(
                "earlier_weights", earlier, must_be="probabilities that sum to 1"
            )
        if not (np.all(lengths >= 0.0) and self.window_weights.sum() > 0.0):
            raise InvalidParameter(
                "window_costs", self.window_costs, must_be="at least 0, for some positions"
            )

    @property
    def largest_mu(self) -> float:
        """The largest length along the common direction."""
        return float(max(self.mus.max(initial=0.0), self.earlier_mus.max()))

    @property
    def is_out_of_range(self) -> bool:
        """Whether a mean is so large that nothing is hidden, and exponentials may overflow."""
        return not max(self.largest_mu, float(self.window_costs.max())) <= _LARGEST_MU


@dataclass(frozen=True)
class MixtureGrid:
    """The resolution: cells of the sums, the step of G, and the spacing of log kappa."""

    cells: int
    step: float
    spacing: float


class MixtureDivergence:
    """The divergence of one pair of laws in one direction, for epsilons near a given one."""

    def __init__(
        self, mixture: PositionMixture, pair: MixturePair, epsilon: float, grid: MixtureGrid
    ) -> None:
        if mixture.is_out_of_range:
            raise InvalidParameter("mixture", mixture, must_be=f"of means up to {_LARGEST_MU:g}")
        self._pair = pair
        self._least, self._most = (
            (1.0 - _COMPUTED_SHARE) * epsilon,
            (1.0 + _COMPUTED_SHARE) * epsilon,
        )
        at = _edges(grid.step)
        self._masses, last = _masses_up_to(at), float(at[-1])
        earlier_beyond = mixture.earlier_weights @ ndtr(mixture.earlier_mus - last)
        beyond = mixture.weights @ ndtr(mixture.mus - last)
        beyond += mixture.window_weights.sum() * earlier_beyond
        self._beyond = float(ndtr(-last)) if pair is MixturePair.MIXTURE_SECOND else float(beyond)
        one, none = np.ones(at.size), np.zeros(at.size)
        first = (one, none) if pair is MixturePair.MIXTURE_SECOND else _likelihoods(mixture, at)
        second = (one, none) if pair is MixturePair.MIXTURE_FIRST else _likelihoods(mixture, -at)
        # The first is rounded up and the second down, also for the roundings in `_arguments`.
        steps = 64.0 + max(mixture.mus.size, mixture.earlier_mus.size)
        steps += 8.0 * _LARGEST_G * mixture.largest_mu
        steps += 4.0 * mixture.largest_mu**2
        self._first = [up(likelihood, ulps(steps)) for likelihood in first]
        self._second = [down(likelihood, ulps(steps)) for likelihood in second]
        self._calls = self._table(mixture, at, grid)

    def delta(self, epsilon: float) -> float:
        """delta, rounded up; 1 for epsilons far from the given one."""
        if not self._least <= epsilon <= self._most:
            return 1.0
        unit, kappas, thresholds = self._arguments(math.exp(epsilon))
        values = unit * self._calls(kappas, thresholds)
        total = float(self._masses @ values) + self._beyond
        return min(up(total, MILLIONS_OF_ROUNDINGS), 1.0)

    def _arguments(self, alpha: float) -> tuple[Array, Array, Array]:
        """The factor of the call function, its kappa and its threshold for every G."""
        (first, first_window), (second, second_window) = self._first, self._second
        mixture_second = self._pair is MixturePair.MIXTURE_SECOND
        unit = alpha * second_window if mixture_second else first_window
        return unit, alpha * second_window / unit, (alpha * second - first) / unit

    def _table(self, mixture: PositionMixture, at: Array, grid: MixtureGrid) -> DifferenceCalls:
        ends = [self._arguments(math.exp(epsilon)) for epsilon in (self._least, self._most)]
        largest = np.maximum(ends[0][2], ends[1][2])
        present = mixture.window_weights > 0.0
        weights, costs = mixture.window_weights[present], mixture.window_costs[present]
        groups = None if mixture.window_of is None else mixture.window_of[present]
        if self._pair is not MixturePair.MIRRORED:
            positive = self._pair is MixturePair.MIXTURE_FIRST
            kappas = np.array([0.0 if positive else 1.0])
            # Thresholds that are never reached need no point on the grid.
            reach = np.array([math.exp(self._most) if positive else 0.0])
            return DifferenceCalls(
                weights,
                costs,
                kappas=kappas,
                ends=reach,
                cells=grid.cells,
                positive=positive,
                groups=groups,
            )
        earlier_mu = float(mixture.earlier_weights @ mixture.earlier_mus)
        low = math.log(float(ends[0][1].min()))
        high = math.log(float(ends[1][1].max()))
        count = math.ceil((high - low) / grid.spacing) + 1
        kappas = np.exp(np.linspace(low - ulps(64.0), high + ulps(64.0), max(count, 2)))
        # Kappa is alpha e^(-2 m G), and the threshold falls as G grows; the largest do not count.
        with np.errstate(over="ignore"):  # an infinite G is beyond all edges, as intended
            where = (self._most - np.log(kappas)) / max(2.0 * earlier_mu, TINY)
        where = np.maximum(where, _LEAST_G) if earlier_mu else np.full(kappas.size, _LEAST_G)
        reach = np.interp(where, at, largest)
        middle = max(float(np.interp(0.0, at, largest)), 0.0) + mixture.window_weights.sum()
        reach = np.minimum(reach, _LARGEST_THRESHOLD * middle)
        return DifferenceCalls(
            weights, costs, kappas=kappas, ends=reach, cells=grid.cells, groups=groups
        )


def _edges(step: float) -> Array:
    """The edges of cells of G, which are wide where they hardly matter."""
    return np.concatenate(
        [
            np.linspace(-_LARGEST_G, -2.0, 29)[:-1],
            np.arange(-2.0, 8.0, step),
            np.linspace(8.0, _LARGEST_G, 11),
        ]
    )


def _masses_up_to(at: Array) -> Array:
    """Normal probabilities of the cells that end at `at`, the first without a start; rounded up."""
    cells, tail = normal_cells(at, at[1:] > 0.0)
    off = ulps(64.0 + 4.0 * at[1:] ** 2) * tail
    return np.concatenate([ndtr(at[:1]), np.maximum(cells, 0.0) + off])


def _likelihoods(mixture: PositionMixture, at: Array) -> tuple[Array, Array]:
    """The likelihood ratios of positions outside windows, and of late ones but for windows."""
    outside, earlier = (
        np.exp(np.multiply.outer(at, mus) - 0.5 * mus**2) @ weights
        for mus, weights in (
            (mixture.mus, mixture.weights),
            (mixture.earlier_mus, mixture.earlier_weights),
        )
    )
    return outside, earlier
