r"""Late places that are hidden together: what a lender can be told from them and itself.

In `hidden_place` a late place t, once moved to a lender e, is known to be the one that was moved.
Here it need not be.  For every lender,

.. math:: B_e(a) = E \big( e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} X - a \big)_+ , \quad
    X = \sum_j F_j\, e^{\rho_j z_j - \rho_j^2/2} ,

takes the place of :math:`\delta_{\mu_e}(\log a)`, for independent standard normal G and
:math:`z_j`: :math:`F_j` is what has been moved of the places that window j pays for,
:math:`\rho_j` what that costs, :math:`m_e` what all else costs with the example at e, and
:math:`n_e` with it at a late place.  `shuffling.joint_position_transport` has the proof.

B is convex and does not increase in a: chords between knots lie above it, and beyond the last knot
its value there holds.  Given X the integrand is a convex function of G, namely the positive part
of a sum of exponentials; so between knots of G it is below its chords, which are integrated
exactly.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    down,
    ulps,
    up,
)
from lastiterate.bounds.shuffling.lognormal_sum import CallFunction, call_function
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import deltas_on_both_sides

_MARGIN = TENS_OF_THOUSANDS_OF_ROUNDINGS  # by which what is lent exceeds what is needed
_PRICES = np.linspace(0.0, 1.0, 33)
_ROUNDS = 4
_LEAST_PRICE, _LARGEST_PRICE = -2.0, 14.0  # standard deviations
_FARTHEST = 9.0  # standard deviations of G
_SUMMED_TO_ONE = 1e-9
_KNOTS = np.linspace(-1.0, 1.0, 41)
_WIDEST = 0.5  # logarithm, from the middle knot to the last, and at most epsilon


@dataclass(frozen=True, eq=False)
class Worlds:
    """The probabilities of the example's possible positions, and the engine's mu for each.

    Lenders have mu `own`, and `beside` for a late place that is hidden, without its last arrival.
    Places of the others that are moved one by one have mu `home`, and `moved` against any lender;
    so do those that may be `hidden` together, in `windows` in which an arrival costs `sizes`.
    """

    lenders: Array
    own: Array
    beside: Array
    others: Array
    home: Array
    moved: Array
    hidden: Array
    hidden_home: Array
    hidden_moved: Array
    windows: IntArray
    sizes: Array

    def __post_init__(self) -> None:
        every = np.concatenate([self.lenders, self.others, self.hidden])
        sound = self.lenders.size and np.all(every >= 0.0) and np.sum(self.lenders) > 0.0
        if not (sound and np.sum(every) >= 1.0 - _SUMMED_TO_ONE):
            raise InvalidParameter("lenders", self.lenders, must_be="all that is not elsewhere")

    def staying(self, epsilon: float, price: float) -> Array:
        """Which share of each hidden place is best left at home, roughly."""
        moved = np.maximum(self.hidden_moved, self.hidden_home)
        gained = self.hidden_home * (price - moved + self.hidden_home / 2)
        return np.asarray(np.exp(np.minimum(epsilon - gained, 0.0)))


@dataclass(frozen=True)
class Detail:
    """How finely things are computed."""

    lenders: int
    knots: int  # every so many of them
    cells: int
    step: float  # of G


class Together:
    """One way to hide places together and to lend to the others; of the hidden `stay` do not move.

    It is made for an epsilon, but holds for all.
    """

    def __init__(self, worlds: Worlds, stay: Array, epsilon: float, detail: Detail) -> None:
        if not (stay.shape == worlds.hidden.shape and np.all((stay >= 0.0) & (stay <= 1.0))):
            raise InvalidParameter("stay", stay, must_be="shares, one for each hidden place")
        self._worlds, self._stay = worlds, stay
        self._moved = np.maximum(worlds.moved, worlds.home)
        first = np.unique(
            np.linspace(0, worlds.lenders.size, detail.lenders, endpoint=False).astype(np.int64)
        )
        # Of lenders that are grouped the most exposed counts.
        self._lenders = np.add.reduceat(worlds.lenders, first)
        own = np.maximum.reduceat(worlds.own, first)
        beside = np.maximum.reduceat(worlds.beside, first)
        moved = up(worlds.hidden * (1.0 - stay) / worlds.lenders.sum(), THOUSANDS_OF_ROUNDINGS)
        weights = np.zeros(worlds.sizes.size)
        np.add.at(weights, worlds.windows, moved)
        knots = _KNOTS[:: detail.knots]
        self._knots = np.exp(epsilon + min(_WIDEST, epsilon) * knots * np.abs(knots))
        end = float(self._knots[knots.size // 2])
        calls = call_function(weights, worlds.sizes, end=end, cells=detail.cells)
        mean = float(up(weights.sum(), THOUSANDS_OF_ROUNDINGS))
        self._brackets = brackets(own, beside, calls, mean, self._knots, detail.step)
        self._slopes = -np.diff(self._brackets, axis=1) / np.diff(self._knots)
        self.price = _LEAST_PRICE

    def delta(self, epsilon: float) -> float:
        if not self._knots[0] <= math.exp(epsilon) <= self._knots[-1]:
            return 1.0
        low, high = _LEAST_PRICE, _LARGEST_PRICE
        for _ in range(_ROUNDS):
            prices = low + (high - low) * _PRICES
            enough = np.flatnonzero(self._covered(epsilon, prices))
            if not enough.size:
                return 1.0
            last = int(enough[-1])
            low, high = float(prices[last]), float(prices[min(last + 1, _PRICES.size - 1)])
        self.price = low
        return self._at_price(epsilon, low)

    def _kept(self, epsilon: float, prices: Array) -> Array:
        """The argument a of each receiving position's B_e, a knot or e^epsilon, by multiplier."""
        tail = ndtr(-prices)
        steeper = (self._slopes[:, :, None] > tail).sum(axis=1)
        return np.asarray(np.minimum(self._knots[steeper], down(math.exp(epsilon), ulps(8.0))))

    def _terms(self, epsilon: float, price: Array | float) -> tuple[Array, Array]:
        """log of what is asked for moved places, and of what stays."""
        worlds, moved = self._worlds, self._moved
        asked = moved * (price - moved / 2)
        stayed = np.minimum(0.0, epsilon - worlds.home * (price - moved + worlds.home / 2))
        return np.asarray(asked), np.asarray(stayed)

    def _covered(self, epsilon: float, prices: Array) -> Array:
        """Whether what is lent at these prices is needed nowhere else."""
        lent = self._lenders @ (1.0 - self._kept(epsilon, prices) * np.exp(-epsilon))
        asked, stayed = self._terms(epsilon, prices[:, None])
        needed = -np.expm1(stayed) * np.exp(np.minimum(asked - epsilon, 600.0))
        owed = needed @ self._worlds.others
        # What is kept is rounded by ulps of 1.
        return np.asarray((owed == 0.0) | (up(owed, _MARGIN) <= lent - _MARGIN))

    def _at_price(self, epsilon: float, price: float) -> float:
        worlds = self._worlds
        kept = self._kept(epsilon, np.array([price]))[:, 0]
        asked, stayed = self._terms(epsilon, price)
        share = np.maximum(self._stay, TINY)
        others = worlds.others.size
        deltas = deltas_on_both_sides(
            np.concatenate([worlds.home, self._moved, worlds.hidden_home]),
            np.concatenate([epsilon - stayed, asked, epsilon - np.log(share)]),
        )
        at_home = np.exp(stayed) * deltas[:others]
        elsewhere = -np.expm1(stayed) * deltas[others : 2 * others]
        unhidden = share * deltas[2 * others :]
        total = (
            self._lenders @ self._brackets_at(kept)
            + worlds.others @ (at_home + elsewhere)
            + worlds.hidden @ unhidden
        )
        return min(up(float(total), THOUSANDS_OF_ROUNDINGS), 1.0)

    def _brackets_at(self, kept: Array) -> Array:
        """Each lender's B where it keeps so much, by the chord between the knots around."""
        knots, count = self._knots, self._knots.size
        first = np.clip(np.searchsorted(knots, kept) - 1, 0, count - 2)
        part = np.clip((kept - knots[first]) / (knots[first + 1] - knots[first]), 0.0, 1.0)
        rows = np.arange(kept.size)
        low, high = self._brackets[rows, first], self._brackets[rows, first + 1]
        return np.asarray((1.0 - part) * low + part * high)


def brackets(
    own: Array, beside: Array, calls: CallFunction, mean: float, knots: Array, step: float
) -> Array:
    """B at each knot, for each lender, rounded up."""
    at = np.concatenate(
        [[-_FARTHEST, -2.0, 0.0, 1.0], np.arange(1.5, 6.5, step), np.arange(6.5, _FARTHEST, 0.5)]
    )
    at = np.append(at, _FARTHEST)
    weights = _chords(at)
    ours, theirs = _exponentials(own, at), _exponentials(beside, at)
    thresholds = (knots - ours[:, :, None]) / theirs[:, :, None]
    # A threshold is off by ulps of its terms, and the function has slope -1 at most.
    off = ulps(8.0) * (knots + ours[:, :, None])
    values = theirs[:, :, None] * calls(thresholds) + off
    inside = np.einsum("g,egk->ek", weights, values)
    beyond = ndtr(own - _FARTHEST) + mean * ndtr(beside - _FARTHEST)
    return np.asarray(up(inside + beyond[:, None], MILLIONS_OF_ROUNDINGS))


def _exponentials(mus: Array, at: Array) -> Array:
    """e^(m G - m^2/2), rounded up."""
    exponents = mus[:, None] * at - 0.5 * np.square(mus[:, None])
    return up(np.exp(exponents), ulps(8.0 + 4.0 * np.abs(exponents)))


def _chords(at: Array) -> Array:
    """The weights of values at these places in the normal integral of their chords, rounded up.

    What lies below the first counts as there, what lies above the last not at all.
    """
    low, high, width = at[:-1], at[1:], np.diff(at)
    # By the tail that is smaller.
    falling = low + high > 0.0
    mass = np.where(falling, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    density = np.exp(-0.5 * at * at) / np.sqrt(2.0 * np.pi)
    moment = density[:-1] - density[1:]
    larger = (density[:-1] + density[1:]) / width + (np.abs(low) + np.abs(high)) / width * mass
    off = ulps(64.0 + 4.0 * _FARTHEST**2) * (larger + np.where(falling, ndtr(-low), ndtr(high)))
    right = np.maximum((moment - low * mass) / width, 0.0) + off
    left = np.maximum((high * mass - moment) / width, 0.0) + off
    weights = np.append(left, 0.0) + np.append(0.0, right)
    weights[0] += ndtr(at[0])
    return np.asarray(up(weights, ulps(64.0)))
