r"""Joint transport: late positions that are moved to a receiving position share its divergence.

In `shuffling.transport` each late position t is compared with the receiving position e on its own.
Here positions whose last participations are hidden by different windows of noise are compared
together.  For every receiving position,

.. math:: B_e(a) = E \big( e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} X - a \big)_+ , \quad
    X = \sum_j F_j\, e^{\rho_j z_j - \rho_j^2/2} ,

replaces :math:`\delta_{\mu_e}(\log a)`, for standard normal G and :math:`z_j`, which are
independent except that positions of the same window share their :math:`z_j`.  :math:`F_j` is the
mass transported from position j, :math:`\rho_j` the cost of its shift in its window, :math:`m_e`
the mu of the example at e and :math:`n_e` the mu of a late position against e, both without what
the windows hide.  `docs/tightness.md#joint-transport` has the theorem.

B is convex and does not increase in a: chords between knots lie above it, and its value at the
last knot holds beyond it.  Given X the integrand is a convex function of G, the positive part of a
sum of exponentials; chords between knots of G lie above it, and are integrated exactly.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    down,
    ulps,
    up,
)
from lastiterate.bounds.shuffling.lognormal import CallFunction, call_function
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import deltas_on_both_sides, normal_cells

_MARGIN = TENS_OF_THOUSANDS_OF_ROUNDINGS  # by which the available mass exceeds the needed
_MULTIPLIER_GRID = np.linspace(0.0, 1.0, 33)
_ROUNDS = 4  # of the search for the multiplier, grid within grid
_LEAST_MULTIPLIER, _LARGEST_MULTIPLIER = -2.0, 14.0  # standard deviations
_LARGEST_EXPONENT = 600.0
_LARGEST_G = 9.0  # standard deviations
_ROUNDED_ONE = down(1.0, MILLIONS_OF_ROUNDINGS)  # least sum of probabilities
_KNOTS = np.linspace(-1.0, 1.0, 41)
_WIDEST = 0.5  # of log a, from the middle knot to the last, and at most epsilon


@dataclass(frozen=True, eq=False)
class PositionLaws:
    """The probabilities of the example's possible positions, and the mus of each.

    `receiving` positions have `receiving_mus`, and `residual_mus` for a hidden late position
    against them without its last participation.  `separate` late positions are transported one by
    one: they have `separate_mus`, and `separate_transport_mus` against any receiving position.  So
    do the `hidden` late positions, which may be transported together: position t uses the window
    `window_of[t]`, in which its shift has the cost `window_costs[t]`.
    """

    receiving: Array
    receiving_mus: Array
    residual_mus: Array
    separate: Array
    separate_mus: Array
    separate_transport_mus: Array
    hidden: Array
    hidden_mus: Array
    hidden_transport_mus: Array
    window_of: IntArray
    window_costs: Array

    def __post_init__(self) -> None:
        every = np.concatenate([self.receiving, self.separate, self.hidden])
        valid = self.receiving.size and np.all(every >= 0.0) and np.sum(self.receiving) > 0.0
        if not (valid and np.sum(every) >= _ROUNDED_ONE):
            raise InvalidParameter(
                "receiving", self.receiving, must_be="probabilities that sum to 1 with the others"
            )

    def retained_shares(self, epsilon: float, multiplier: float) -> Array:
        """The share of each hidden position that is best not transported, roughly."""
        transported = np.maximum(self.hidden_transport_mus, self.hidden_mus)
        gained = self.hidden_mus * (multiplier - transported + self.hidden_mus / 2)
        return np.asarray(np.exp(np.minimum(epsilon - gained, 0.0)))


@dataclass(frozen=True)
class TransportGrid:
    """The resolution of joint transport: groups of positions, knots, cells and steps of G."""

    receiving: int
    every_nth_knot: int
    cells: int
    step: float


class JointTransport:
    """One joint transport, computed for an epsilon and valid for all.

    Of the hidden positions the shares `retained` are not transported.
    """

    def __init__(
        self, laws: PositionLaws, retained: Array, epsilon: float, grid: TransportGrid
    ) -> None:
        if not (
            retained.shape == laws.hidden.shape and np.all((retained >= 0.0) & (retained <= 1.0))
        ):
            raise InvalidParameter(
                "retained", retained, must_be="shares, one for each hidden position"
            )
        self._laws, self._retained = laws, retained
        self._transport_mus = np.maximum(laws.separate_transport_mus, laws.separate_mus)
        first = np.unique(
            np.linspace(0, laws.receiving.size, grid.receiving, endpoint=False).astype(np.int64)
        )
        # A group of receiving positions has the largest mu among them.
        self._receiving = np.add.reduceat(laws.receiving, first)
        receiving_mus = np.maximum.reduceat(laws.receiving_mus, first)
        residual_mus = np.maximum.reduceat(laws.residual_mus, first)
        moved = up(laws.hidden * (1.0 - retained) / laws.receiving.sum(), THOUSANDS_OF_ROUNDINGS)
        knots = _KNOTS[:: grid.every_nth_knot]
        self._knots = np.exp(epsilon + min(_WIDEST, epsilon) * knots * np.abs(knots))
        end = float(self._knots[knots.size // 2])
        calls = call_function(
            moved, laws.window_costs, groups=laws.window_of, end=end, cells=grid.cells
        )
        mean = float(up(moved.sum(), THOUSANDS_OF_ROUNDINGS))
        self._values = joint_divergences(
            receiving_mus, residual_mus, calls, mean, self._knots, grid.step
        )
        self._slopes = -np.diff(self._values, axis=1) / np.diff(self._knots)
        self.multiplier = _LEAST_MULTIPLIER

    def delta(self, epsilon: float) -> float:
        """delta by the largest feasible multiplier, rounded up; 1 if there is none."""
        if not self._knots[0] <= math.exp(epsilon) <= self._knots[-1]:
            return 1.0
        low, high = _LEAST_MULTIPLIER, _LARGEST_MULTIPLIER
        for _ in range(_ROUNDS):
            multipliers = low + (high - low) * _MULTIPLIER_GRID
            feasible = np.flatnonzero(self._feasible(epsilon, multipliers))
            if not feasible.size:
                return 1.0
            last = int(feasible[-1])
            low = float(multipliers[last])
            high = float(multipliers[min(last + 1, _MULTIPLIER_GRID.size - 1)])
        self.multiplier = low
        return self._delta_at(epsilon, low)

    def _kept(self, epsilon: float, multipliers: Array) -> Array:
        """The argument a of each receiving position's B_e, a knot or e^epsilon, by multiplier."""
        tail = ndtr(-multipliers)
        steeper = (self._slopes[:, :, None] > tail).sum(axis=1)
        return np.asarray(np.minimum(self._knots[steeper], down(math.exp(epsilon), ulps(8.0))))

    def _terms(self, epsilon: float, multiplier: Array | float) -> tuple[Array, Array]:
        """The logarithms of lambda_t and of the retained shares of separate positions."""
        mus, transported = self._laws.separate_mus, self._transport_mus
        needed_per_mass = transported * (multiplier - transported / 2)
        retained = np.minimum(0.0, epsilon - mus * (multiplier - transported + mus / 2))
        return np.asarray(needed_per_mass), np.asarray(retained)

    def _feasible(self, epsilon: float, multipliers: Array) -> Array:
        """Whether receiving positions give up what the separate transported mass needs."""
        available = self._receiving @ (1.0 - self._kept(epsilon, multipliers) * np.exp(-epsilon))
        needed_per_mass, retained = self._terms(epsilon, multipliers[:, None])
        relative = np.exp(np.minimum(needed_per_mass - epsilon, _LARGEST_EXPONENT))
        needed = (-np.expm1(retained) * relative) @ self._laws.separate
        # The margin is absolute, since 1 - kept is off by ulps of 1.
        return np.asarray((needed == 0.0) | (up(needed, _MARGIN) <= available - _MARGIN))

    def _delta_at(self, epsilon: float, multiplier: float) -> float:
        laws = self._laws
        kept = self._kept(epsilon, np.array([multiplier]))[:, 0]
        needed_per_mass, retained = self._terms(epsilon, multiplier)
        share = np.maximum(self._retained, TINY)
        count = laws.separate.size
        deltas = deltas_on_both_sides(
            np.concatenate([laws.separate_mus, self._transport_mus, laws.hidden_mus]),
            np.concatenate([epsilon - retained, needed_per_mass, epsilon - np.log(share)]),
        )
        of_retained = np.exp(retained) * deltas[:count]
        of_transported = -np.expm1(retained) * deltas[count : 2 * count]
        of_hidden = share * deltas[2 * count :]
        total = (
            self._receiving @ self._values_at(kept)
            + laws.separate @ (of_retained + of_transported)
            + laws.hidden @ of_hidden
        )
        return min(up(float(total), THOUSANDS_OF_ROUNDINGS), 1.0)

    def _values_at(self, kept: Array) -> Array:
        """B_e at one argument for each receiving position, by the chord between two knots."""
        knots, count = self._knots, self._knots.size
        first = np.clip(np.searchsorted(knots, kept) - 1, 0, count - 2)
        part = np.clip((kept - knots[first]) / (knots[first + 1] - knots[first]), 0.0, 1.0)
        rows = np.arange(kept.size)
        low, high = self._values[rows, first], self._values[rows, first + 1]
        return np.asarray((1.0 - part) * low + part * high)


def joint_divergences(
    receiving_mus: Array,
    residual_mus: Array,
    calls: CallFunction,
    mean: float,
    knots: Array,
    step: float,
) -> Array:
    """B at each knot, for each receiving position, rounded up; `mean` is that of X."""
    # Knots are close together where most of the integral comes from.
    at = np.concatenate(
        [[-_LARGEST_G, -2.0, 0.0, 1.0], np.arange(1.5, 6.5, step), np.arange(6.5, _LARGEST_G, 0.5)]
    )
    at = np.append(at, _LARGEST_G)
    weights = _chord_weights(at)
    own, transported = _exponentials(receiving_mus, at), _exponentials(residual_mus, at)
    thresholds = (knots - own[:, :, None]) / transported[:, :, None]
    # A threshold is off by ulps of its terms, and the function has slope -1 at most.
    off = ulps(8.0) * (knots + own[:, :, None])
    values = transported[:, :, None] * calls(thresholds) + off
    inside = np.einsum("g,egk->ek", weights, values)
    beyond = ndtr(receiving_mus - _LARGEST_G) + mean * ndtr(residual_mus - _LARGEST_G)
    return np.asarray(up(inside + beyond[:, None], MILLIONS_OF_ROUNDINGS))


def _exponentials(mus: Array, at: Array) -> Array:
    """e^(m G - m^2/2), rounded up."""
    exponents = mus[:, None] * at - 0.5 * np.square(mus[:, None])
    return up(np.exp(exponents), ulps(8.0 + 4.0 * np.abs(exponents)))


def _chord_weights(at: Array) -> Array:
    """The weights of values at knots `at` in the normal integral of their chords, rounded up.

    Below the first knot the function counts as constant, above the last one as 0.
    """
    low, high, width = at[:-1], at[1:], np.diff(at)
    mass, tail = normal_cells(at, low + high > 0.0)
    density = np.exp(-0.5 * at * at) / np.sqrt(2.0 * np.pi)
    moment = density[:-1] - density[1:]
    larger = (density[:-1] + density[1:]) / width + (np.abs(low) + np.abs(high)) / width * mass
    off = ulps(64.0 + 4.0 * _LARGEST_G**2) * (larger + tail)
    right = np.maximum((moment - low * mass) / width, 0.0) + off
    left = np.maximum((high * mass - moment) / width, 0.0) + off
    weights = np.append(left, 0.0) + np.append(0.0, right)
    weights[0] += ndtr(at[0])
    return np.asarray(up(weights, ulps(64.0)))
