r"""The composition of very many steps, each a mixture of Gaussians, by moments.

With very many steps the rounding of Fourier transforms is too large.  Logarithms of moments still
add up, with small relative errors.  In one step let
:math:`m(z) = \sum_j w_j e^{a_j z - a_j^2/2}` be the likelihood ratio of :math:`E\,N(Y, 1)` to
N(0, 1), where Y is :math:`a_j \ge 0` with probability :math:`w_j`.  Let
:math:`\psi_\beta(x) = x^\beta - 1 - \beta(x - 1)`, which is convex.  The moment of order
:math:`\alpha`, minus 1, is an average over a normal z of

* :math:`\psi_\alpha(m)` and :math:`\psi_{1-\alpha}(m)`: the mixture against N(0, 1), and N(0, 1)
  against the mixture;
* :math:`m(-z)\,\psi_\alpha(m(z)/m(-z))`: the mixture against its mirror image;
* :math:`\psi_\alpha(m) + \psi_{1-\alpha}(m)` where :math:`m \ge 1`, else 0: the larger of both
  directions at every epsilon (C_p of Dong, Roth and Su 2022), by
  :math:`\alpha(\alpha-1)\int_1^\infty (\gamma^{\alpha-2} + \gamma^{-\alpha-1}) H_\gamma\,d\gamma`.

Each of them falls and then rises in z, so in a cell it is at most its larger value at the ends.

**Large losses** make large moments, but are rare.  In terms with :math:`\psi_\alpha` results beyond
some z are truncated, and their probability over all T steps, :math:`\tau`, is added to delta.  The
remaining measures P' and Q' lack more of P than of Q.  So their moment is at most
:math:`(1 + e)^T`, where e is the average of the rest; and
:math:`\int \phi(P'/Q')\,dQ' \le (1 + e)^T - 1 + \alpha\tau` with the function of `renyi`.
Both ways from there to delta hold with the moment :math:`(1 + e)^T + \alpha\tau`.
"""

import math
from enum import Enum

import numpy as np
from scipy.special import log_ndtr, ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, Array, ulps, up
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import log_deltas, rounded_up_exp

_ORDERS = 60  # number of orders
_CELLS = 150  # in a standard deviation
_LARGEST_Z = 38.0  # standard deviations, beyond which there is 1e-316
_TRUNCATED = (0.0, *(10.0**-i for i in range(4, 17, 3)))  # probabilities of truncated results
_NEARLY_ONE = 1e-4  # beta (x - 1), below which the difference in psi would cancel
_LARGEST_LOG = 600.0


class StepPair(Enum):
    """The pair of laws of one step."""

    MIXTURE_AND_NORMAL = "a mixture against N(0, 1), and N(0, 1) against the mixture"
    MIRRORED_MIXTURES = "a mixture against its mirror image"
    WORSE_DIRECTION = "a mixture and N(0, 1), in the worse direction at every epsilon"


class ComposedMomentsProfile(PrivacyProfile):
    """The profile of independent steps with mean levels[j] with probability masses[j].

    >>> levels, masses = np.array([0.0, 1.0]), np.array([1.0 - 1e-6, 1e-6])
    >>> few = ComposedMomentsProfile(levels, masses, 10**6, StepPair.MIXTURE_AND_NORMAL)
    >>> many = ComposedMomentsProfile(levels, masses, 10**10, StepPair.MIXTURE_AND_NORMAL)
    >>> few.epsilon(1e-6) < 0.01 < many.epsilon(1e-6) < 1.0
    True
    """

    def __init__(self, levels: Array, masses: Array, steps: int, pair: StepPair) -> None:
        levels, masses = levels[masses > 0.0], masses[masses > 0.0]
        self._parts = [_Part(levels, masses, steps, pair, truncated) for truncated in _TRUNCATED]

    def __repr__(self) -> str:
        return "ComposedMomentsProfile()"

    def deltas(self, epsilons: Array) -> Array:
        return np.array([min(part.delta(float(one)) for part in self._parts) for one in epsilons])

    def renyi(self, order: float) -> float:
        """inf, since some results are truncated."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf, since tails are heavier than those of a Gaussian."""
        return math.inf


class _Part:
    """Moments of all orders, without results of the probability `truncated` in all steps."""

    def __init__(
        self, levels: Array, masses: Array, steps: int, pair: StepPair, truncated: float
    ) -> None:
        end = _end(levels, masses, truncated / steps)
        ratios = _Ratios(levels, masses, end)
        self._lost = min(up(steps * ratios.beyond, MILLIONS_OF_ROUNDINGS), 1.0)
        spread = math.sqrt(steps * math.exp(min(_log_excess(ratios, 2.0, pair), 100.0)))
        spread = min(max(spread, 1e-6), 1e3)
        self._orders = 1.0 + np.geomspace(0.02, 60.0, _ORDERS) / spread
        logs = np.array([_log_excess(ratios, float(one), pair) for one in self._orders])
        with np.errstate(over="ignore"):
            step_logs = np.where(logs > _LARGEST_LOG, logs, np.log1p(np.exp(logs)))
        moments = np.logaddexp(
            steps * step_logs, np.log(self._orders) + math.log(self._lost + TINY)
        )
        self._divergences = up(moments, MILLIONS_OF_ROUNDINGS) / (self._orders - 1.0)

    def delta(self, epsilon: float) -> float:
        log = float(log_deltas(self._divergences, self._orders, epsilon).min())
        return min(up(rounded_up_exp(log) + self._lost, ulps(2)), 1.0)


def _end(levels: Array, masses: Array, probability: float) -> float:
    """The threshold that a result exceeds with about this probability."""
    top = float(levels.max()) + _LARGEST_Z
    edges = np.linspace(0.0, top, 4000)
    beyond = ndtr(levels - edges[:, None]) @ masses
    return float(edges[min(int(np.searchsorted(-beyond, -probability)), edges.size - 1)])


class _Ratios:
    """m - 1 and log m at the edges of cells up to `end`, and at those mirrored."""

    def __init__(self, levels: Array, masses: Array, end: float) -> None:
        edges = np.linspace(-_LARGEST_Z, end, math.ceil((end + _LARGEST_Z) * _CELLS) + 1)
        edges = np.sort(np.append(edges, 0.0))
        self.excess, self.log = _ratio(levels, masses, edges)
        self.mirrored, self.log_mirrored = _ratio(levels, masses, -edges)
        # Each cell lies on one side of 0, where differences of normal tails are precise.
        away = np.abs(edges)
        closer, farther = np.minimum(away[:-1], away[1:]), np.maximum(away[:-1], away[1:])
        tail = log_ndtr(-closer)
        with np.errstate(divide="ignore"):
            self.log_cells = tail + np.log(-np.expm1(log_ndtr(-farther) - tail))
        self.beyond = float(ndtr(levels - end) @ masses)
        self.below = float(ndtr(levels - _LARGEST_Z) @ masses)
        absent = float(masses[levels == 0.0].sum())
        self.least_log = math.log(absent) if absent > 0.0 else -math.inf


def _ratio(levels: Array, masses: Array, at: Array) -> tuple[Array, Array]:
    exponents = at[:, None] * levels - 0.5 * levels * levels
    top = exponents.max(axis=1)
    with np.errstate(over="ignore", under="ignore"):
        excess = np.expm1(np.minimum(exponents, _LARGEST_LOG)) @ masses
        direct = top + np.log(np.exp(exponents - top[:, None]) @ masses)
    # Near 1 the logarithm comes from the distance to 1, which elsewhere may overflow or cancel.
    near = np.abs(excess) < 0.5
    return excess, np.where(near, np.log1p(np.where(near, excess, 0.0)), direct)


def _log_excess(ratios: _Ratios, order: float, pair: StepPair) -> float:
    """The logarithm of the moment of one step minus 1, rounded up."""
    excess, log = ratios.excess, ratios.log
    if pair is StepPair.MIRRORED_MIXTURES:
        mirrored, other = ratios.mirrored, ratios.log_mirrored
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            near = (np.abs(excess) < 0.5) & (np.abs(mirrored) < 0.5)
            apart = np.where(near, (excess - mirrored) / (1.0 + mirrored), np.expm1(log - other))
        terms = [other + _log_psi(apart, log - other, order)]
    else:
        forwards, backwards = _log_psi(excess, log, order), _log_psi(excess, log, 1.0 - order)
        terms = [forwards, backwards]
        if pair is StepPair.WORSE_DIRECTION:
            terms = [np.where(excess >= 0.0, np.logaddexp(forwards, backwards), -np.inf)]
    inside = max(
        float(np.logaddexp.reduce(np.maximum(term[:-1], term[1:]) + ratios.log_cells))
        for term in terms
    )
    whole = float(np.logaddexp(inside, _log_outside(ratios, order)))
    return whole + MILLIONS_OF_ROUNDINGS * (1.0 + abs(whole))


def _log_outside(ratios: _Ratios, order: float) -> float:
    r"""The logarithm of a bound on the part of the moment outside the cells.

    Below them psi is at most the larger of twice the order and its value at the least ratio; if
    the mirrored ratio m is in it, that times the order, and one.  Above them
    :math:`\psi_{1-\alpha}(m)` is at most the order times m.
    """
    low = float(log_ndtr(-_LARGEST_Z))
    low += np.logaddexp((1.0 - order) * ratios.least_log, math.log(2.0 * order))
    return float(np.logaddexp(low, math.log(order * (ratios.below + ratios.beyond) + TINY)))


def _log_psi(excess: Array, log: Array, exponent: float) -> Array:
    """The logarithm of psi of a ratio, given by its excess over 1 and its logarithm; rounded up."""
    power = exponent * log
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        curved = math.log(exponent * (exponent - 1.0) / 2.0) + 2.0 * np.log(np.abs(excess))
        curved += np.maximum((exponent - 2.0) * log, 0.0)
        difference = np.expm1(np.minimum(power, _LARGEST_LOG)) - exponent * excess
        exact = np.log(np.maximum(difference, 0.0))
        huge = np.logaddexp(power, math.log(abs(exponent)) + np.maximum(log, 0.0))
        small = (1.0 + abs(exponent)) * np.abs(excess) < _NEARLY_ONE
    far = (power > 500.0) | (log > 500.0)
    return np.asarray(np.where(small, curved, np.where(far, huge, exact)) + MILLIONS_OF_ROUNDINGS)
