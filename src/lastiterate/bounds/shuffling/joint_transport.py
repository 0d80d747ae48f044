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

Every choice of late positions, windows and shares is a valid proof.  A search tries a few values
of one parameter after the other on a coarse grid, and computes the best choice on a fine grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    down,
    ulps,
    up,
)
from lastiterate.bounds.shuffling.lognormal import CallFunction, call_function
from lastiterate.bounds.shuffling.positions import LARGEST_NOISE_SHARE, PositionLaws, Positions
from lastiterate.bounds.shuffling.proof_search import Proof, best_by_coordinates
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import deltas_on_both_sides, normal_cells

_MARGIN = TENS_OF_THOUSANDS_OF_ROUNDINGS  # by which the available mass exceeds the needed
_MULTIPLIER_GRID = np.linspace(0.0, 1.0, 33)
_ROUNDS = 4  # of the search for the multiplier, grid within grid
_LEAST_MULTIPLIER, _LARGEST_MULTIPLIER = -2.0, 14.0  # standard deviations
_LARGEST_EXPONENT = 600.0
_LARGEST_G = 9.0  # standard deviations
_KNOTS = np.linspace(-1.0, 1.0, 41)
_LARGEST_KNOT_LOG = 0.5  # of log a, from the middle knot to the last, and at most epsilon
_MOST_CACHED_LAWS = 64  # position laws, in one search


@dataclass(frozen=True)
class TransportParameters:
    """Shares of positions that are late, of late ones that are hidden, and of windows' noise.

    Retained shares of hidden positions are those of a multiplier larger by `extra_multiplier`.
    `first_window` is the length of the first window, in units of 1/(step size x smoothness).
    """

    late: float = 0.35
    hidden: float = 0.08
    noise: float = LARGEST_NOISE_SHARE
    extra_multiplier: float = 0.0
    first_window: float = 0.0


_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.2, 0.35, 0.55),
    "hidden": (0.01, 0.03, 0.08, 0.2, 0.45),
    "extra_multiplier": (-0.4, -0.2, 0.0, 0.3),
    "noise": (0.3, 0.6, LARGEST_NOISE_SHARE),
}
_EARLY_START = TransportParameters(hidden=0.2, first_window=1.5)
_EARLY_VALUES = {
    "late": (0.02, 0.05, 0.1, 0.18, 0.25, 0.35, 0.5),
    "hidden": (0.02, 0.05, 0.1, 0.2, 0.35, 0.6),
    "first_window": (0.0, 0.5, 1.0, 1.5, 2.2),
    "extra_multiplier": (-0.4, -0.2, 0.0, 0.2),
    "noise": (0.3, 0.6, 0.85, LARGEST_NOISE_SHARE),
}


@dataclass(frozen=True)
class TransportGrid:
    """The resolution of joint transport: groups of positions, knots, cells and steps of G."""

    receiving: int
    every_nth_knot: int
    cells: int
    step: float


_COARSE_GRID = TransportGrid(receiving=8, every_nth_knot=2, cells=500, step=0.25)
_FINE_GRID = TransportGrid(receiving=40, every_nth_knot=1, cells=4000, step=0.1)


class TransportSearch:
    """The search for a joint transport, for one order of the data sets.

    `parts` are the probabilities of several laws of the position, one of which holds; the
    parameters are searched for the likeliest one.  `receiving` and `late` multiply the per-step
    sensitivity at receiving and at late positions.  In short steps `window_unit` is the number of
    steps in 1/(step size x smoothness); else it is 0.  `failure` is added to delta.
    """

    def __init__(
        self,
        parts: Sequence[tuple[float, Positions]],
        receiving: float,
        late: float,
        *,
        failure: float = 0.0,
        window_unit: float = 0.0,
    ) -> None:
        self._parts, self._failure = parts, failure
        self._receiving, self._late, self._window_unit = receiving, late, window_unit
        self._likeliest = max(range(len(parts)), key=lambda number: parts[number][0])
        self._start = _EARLY_START if window_unit else TransportParameters()
        self._values = _EARLY_VALUES if window_unit else _VALUES
        # Unlike a cache of functools, a dict can be pickled.
        self._cache: dict[tuple[float, ...], PositionLaws | None] = {}

    def __call__(self, epsilon: float, delta: float) -> Proof | None:
        """A joint transport below `delta` on the coarse grid, or None."""
        likeliest = self._likeliest
        start = self._transport(likeliest, self._start, epsilon, -float(ndtri(delta)), _COARSE_GRID)
        if start is None:
            return None
        start.delta(epsilon)
        multiplier = start.multiplier

        def cost(parameters: TransportParameters) -> float:
            transport = self._transport(likeliest, parameters, epsilon, multiplier, _COARSE_GRID)
            return math.inf if transport is None else transport.delta(epsilon)

        best, least = best_by_coordinates(self._start, self._values, cost)
        if len(self._parts) == 1:
            fine = self._transport(0, best, epsilon, multiplier, _FINE_GRID)
            if not least < delta or fine is None:
                return None
            return fine if not self._failure else _AverageProof([1.0], [fine], self._failure)
        every = [
            self._transport(number, best, epsilon, multiplier, _FINE_GRID)
            for number in range(len(self._parts))
        ]
        transports = [one for one in every if one is not None]
        if len(transports) < len(every):
            return None
        return _AverageProof([share for share, _ in self._parts], transports, self._failure)

    def _transport(
        self,
        number: int,
        parameters: TransportParameters,
        epsilon: float,
        multiplier: float,
        grid: TransportGrid,
    ) -> JointTransport | None:
        laws = self._laws(number, parameters)
        if laws is None:
            return None
        retained = laws.retained_shares(epsilon, multiplier + parameters.extra_multiplier)
        return JointTransport(laws, retained, epsilon, grid)

    def _laws(self, number: int, parameters: TransportParameters) -> PositionLaws | None:
        key = (
            number,
            parameters.late,
            parameters.hidden,
            parameters.noise,
            parameters.first_window,
        )
        if key not in self._cache:
            if len(self._cache) >= _MOST_CACHED_LAWS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._compute_laws(self._parts[number][1], parameters)
        return self._cache[key]

    def _compute_laws(
        self, positions: Positions, parameters: TransportParameters
    ) -> PositionLaws | None:
        """The laws for shares of positions and of noise; None if none is left to receive."""
        weights = positions.weights()
        before = np.cumsum(weights) - weights
        count = int(np.searchsorted(before, parameters.late))
        hidden = max(int(np.searchsorted(before, parameters.late * parameters.hidden)), 1)
        if not hidden <= count < weights.size:
            return None
        first = max(round(parameters.first_window * self._window_unit), 1)
        return positions.joint_laws(
            count, hidden, parameters.noise, self._receiving, self._late, first
        )


@dataclass(frozen=True)
class _AverageProof:
    """The average of joint transports with these probabilities, and a probability of failure."""

    shares: Sequence[float]
    transports: Sequence[JointTransport]
    failure: float

    def delta(self, epsilon: float) -> float:
        deltas = [one.delta(epsilon) for one in self.transports]
        total = math.fsum(p * d for p, d in zip(self.shares, deltas, strict=True)) + self.failure
        return min(up(total, ulps(len(deltas) + 4.0)), 1.0)


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
        self._knots = np.exp(epsilon + min(_LARGEST_KNOT_LOG, epsilon) * knots * np.abs(knots))
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

    def _kept_arguments(self, epsilon: float, multipliers: Array) -> Array:
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
        available = self._receiving @ (
            1.0 - self._kept_arguments(epsilon, multipliers) * np.exp(-epsilon)
        )
        needed_per_mass, retained = self._terms(epsilon, multipliers[:, None])
        relative = np.exp(np.minimum(needed_per_mass - epsilon, _LARGEST_EXPONENT))
        needed = (-np.expm1(retained) * relative) @ self._laws.separate
        # The margin is absolute, since 1 - kept is off by ulps of 1.
        return np.asarray((needed == 0.0) | (up(needed, _MARGIN) <= available - _MARGIN))

    def _delta_at(self, epsilon: float, multiplier: float) -> float:
        laws = self._laws
        kept = self._kept_arguments(epsilon, np.array([multiplier]))[:, 0]
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
