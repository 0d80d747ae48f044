r"""A secret place among Gaussian guarantees, which stays hidden: places lend to each other.

Places :math:`j` have probabilities :math:`p_j`; :math:`P_j, Q_j` are the laws of what is published,
given the place, on one and the other data set.  Revealing the place costs the average
:math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)`, which for large epsilon is little more than the
chance of the most exposed places.  But the attacker does not know the place: what the few *late*
places t gain is paid out of the :math:`e^\varepsilon Q_e` of the many *lenders* e.

**Theorem.** Let :math:`P_t` against :math:`Q_e` be :math:`\mu_{te}`-GDP, :math:`\alpha =
e^\varepsilon`, :math:`y_t \in [0, 1]`, :math:`F_{te} \ge 0` with :math:`\sum_e p_e F_{te} =
p_t (1 - y_t)`, and :math:`\alpha_e = \alpha - \sum_t F_{te} \lambda_{te} \ge 0`.  Then

.. math:: \sup_A P(A) - \alpha Q(A) \le \sum_t p_t y_t \delta_{\mu_t}(\log(\alpha / y_t)) +
    \sum_e p_e \Big[\delta_{\mu_e}(\log \alpha_e) + \sum_t F_{te}
    \delta_{\mu_{te}}(\log \lambda_{te})\Big] .

*Proof.* P is :math:`\sum_t p_t y_t P_t + \sum_e p_e (P_e + \sum_t F_{te} P_t)`, and
:math:`\alpha Q` is :math:`\sum_t p_t \alpha Q_t + \sum_e p_e (\alpha_e Q_e + \sum_t F_{te}
\lambda_{te} Q_e)`.  The supremum of a sum is at most the sum of suprema, taken term by term; and
:math:`\sup_A y P(A) - w Q(A) \le y\,\delta_\mu(\log(w/y))` if P against Q is :math:`\mu`-GDP.

Every choice is a proof.  The best one has a single price z for a unit of what is lent:
:math:`\log\alpha_e = \min(\varepsilon, \mu_e (z - \mu_e/2))`, :math:`\log\lambda_t = \mu_t' (z -
\mu_t'/2)` and :math:`\log(\alpha/y_t) = \max(\varepsilon, \mu_t (z - \mu_t' + \mu_t/2))`, where
:math:`\mu_t'` is the largest :math:`\mu_{te}`; what is moved is spread over the lenders in
proportion to what they lend, so that all constraints become one: the total lent,
:math:`\sum_e p_e (\alpha - \alpha_e)`, covers what is needed, :math:`\sum_t p_t (1 - y_t)
\lambda_t`.  That one is checked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import (
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    down,
    ulps,
    up,
)
from lastiterate._numerics.search import close_in
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import deltas_on_both_sides
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.profile.privacy_profile import PrivacyProfile

_MARGIN = TENS_OF_THOUSANDS_OF_ROUNDINGS  # by which what is lent exceeds what is needed
_FEW = 4  # epsilons that are looked at one by one
_KNOTS, _CHOICES = 400, 8
_NEGLIGIBLE = 1e-15
_LEAST_DELTA = 1e-300  # that is looked for
_PRICES, _FEWER_PRICES = np.linspace(0.0, 1.0, 33), np.linspace(0.0, 1.0, 5)
_CELLS_AT_ONCE = 1 << 19
_LEAST_PRICE, _LARGEST_PRICE = -5.0, 60.0  # standard deviations
_TOLERANCE = 1e-7  # of epsilon, relative to what it is if the place is revealed
_LARGEST_EPSILON = 600.0  # beyond it nothing is lent


@dataclass(frozen=True, eq=False)
class Loan:
    """The first places may be moved to later ones in the list.

    `moved[t]` is the mu of place t's P against the Q of any place from `len(moved)` on, or more.
    """

    moved: Array


class _Lending:
    """One way to lend, at every epsilon as dear as it must be."""

    def __init__(self, weights: Array, mus: Array, moved: Array) -> None:
        count = moved.size
        if not 0 < count < mus.size or not np.all(np.isfinite(moved)):
            raise InvalidParameter("moved", moved, must_be="finite, for some places but not all")
        self._late, self._lenders = weights[:count], weights[count:]
        self._home, self._own = mus[:count], mus[count:]
        # A place is no better hidden by another than by itself.
        self._moved = np.maximum(moved, self._home)

    def delta(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: Array) -> Array:
        places = self._late.size + self._lenders.size
        at_once = max(1, _CELLS_AT_ONCE // (_FEWER_PRICES.size * places))
        blocks = (epsilons[k : k + at_once] for k in range(0, epsilons.size, at_once))
        return np.concatenate([self._deltas(block) for block in blocks])

    def _deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon, by the largest multiplier with enough transport; 1 without."""
        few = epsilons.size <= _FEW
        grid, rounds = (_PRICES, 4) if few else (_FEWER_PRICES, 10)
        at = np.minimum(epsilons, _LARGEST_EPSILON)[:, None, None]
        low, width = np.full((epsilons.size, 1), _LEAST_PRICE), _LARGEST_PRICE - _LEAST_PRICE
        for _ in range(rounds):
            prices = low + width * grid
            # The dearer, the less is lent and the more is asked for.
            covered = self._covered(at, prices[:, :, None])
            last = grid.size - 1 - np.argmax(covered[:, ::-1], axis=1)[:, None]
            low = np.take_along_axis(prices, last, axis=1)
            width /= grid.size - 1
        found = self._at_price(at[:, 0], low)
        lent = self._covered(at, low[:, :, None])[:, 0] & (epsilons <= _LARGEST_EPSILON)
        return np.where(lent, found, 1.0)

    def _covered(self, epsilons: Array, prices: Array) -> NDArray[np.bool_]:
        """Whether what is lent at these prices is needed nowhere else."""
        kept, asked, stayed = self._terms(epsilons, prices)
        # In units of e^epsilon; -expm1 of what is not above 0.
        lent = -np.expm1(kept - epsilons) @ self._lenders
        needed = (-np.expm1(stayed) * np.exp(np.minimum(asked - epsilons, 600.0))) @ self._late
        return np.asarray(up(needed, _MARGIN) <= down(lent, _MARGIN))

    def _terms(self, epsilons: Array, prices: Array) -> tuple[Array, Array, Array]:
        """log of what lenders keep, of what is asked for moved places, and of what stays."""
        kept = np.minimum(epsilons, self._own * (prices - self._own / 2))
        asked = self._moved * (prices - self._moved / 2)
        stayed = np.minimum(0.0, epsilons - self._home * (prices - self._moved + self._home / 2))
        return np.asarray(kept), np.asarray(asked), np.asarray(stayed)

    def _at_price(self, epsilons: Array, prices: Array) -> Array:
        kept, asked, stayed = self._terms(epsilons, prices)
        share = np.exp(stayed)
        at_home = share * deltas_on_both_sides(self._home, epsilons - stayed)
        elsewhere = -np.expm1(stayed) * deltas_on_both_sides(self._moved, asked)
        of_lenders = deltas_on_both_sides(self._own, kept) @ self._lenders
        count = self._late.size + self._lenders.size
        total = (at_home + elsewhere) @ self._late + of_lenders
        return np.asarray(np.minimum(up(total, ulps(count + 16)), 1.0))


class HiddenPlaceProfile(PrivacyProfile):
    """mu_i-GDP at place i, which has probability weight_i and stays hidden.

    Each of `directions` has the loans that are possible for one order of the two data sets, any of
    which may be made; the guarantee is the worse of the directions.

    Examples
    --------
    >>> places = [0.001, 0.999], [1.0, 0.1]
    >>> hidden = HiddenPlaceProfile(*places, [[Loan(np.array([1.01]))]])
    >>> hidden.epsilon(1e-6) < 0.5 < 2.0 < GaussianMixtureProfile(*places).epsilon(1e-6)
    True
    """

    def __init__(
        self, weights: ArrayLike, mus: ArrayLike, directions: Sequence[Sequence[Loan]]
    ) -> None:
        self._revealed = GaussianMixtureProfile(weights, mus)
        shares, values = self._revealed.weights, np.array(mus, dtype=np.float64)
        lent = any(directions)
        if lent and not (shares.size == values.size and np.all(np.isfinite(values))):
            raise InvalidParameter("weights", weights, must_be="positive, with mus below inf")
        self._answered = math.nan, math.nan  # the last question, which others ask again
        self._directions = [
            [_Lending(shares, values, loan.moved) for loan in loans] for loans in directions
        ]

    def __repr__(self) -> str:
        return f"HiddenPlaceProfile({self._revealed!r})"

    def deltas(self, epsilons: Array) -> Array:
        hidden = self._few(epsilons) if epsilons.size <= _FEW else self._many(epsilons)
        return np.asarray(np.minimum(self._revealed.deltas(epsilons), hidden))

    def epsilon(self, delta: float) -> float:
        asked, known = self._answered
        if asked != delta:
            known = self._epsilon(delta)
            self._answered = delta, known
        return known

    def _epsilon(self, delta: float) -> float:
        revealed = self._revealed.epsilon(delta)
        if not 0.0 < revealed < math.inf or delta < _LEAST_DELTA:
            return revealed
        return max(_least(lendings, delta, revealed) for lendings in self._directions)

    def renyi(self, order: float) -> float:
        """The Renyi divergence as if the position were revealed."""
        return self._revealed.renyi(order)

    def gdp(self) -> float:
        """mu as if the position were revealed: at large epsilon the most exposed one counts."""
        return self._revealed.gdp()

    def _few(self, epsilons: Array) -> Array:
        """The least of all lendings, in the worse direction."""
        by_direction = [
            [min((one.delta(e) for one in lendings), default=1.0) for e in epsilons.tolist()]
            for lendings in self._directions
        ]
        return np.asarray(np.max(by_direction, axis=0))

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Knots and deltas there."""
        reach = min(self._revealed.epsilon(_NEGLIGIBLE), _LARGEST_EPSILON)
        knots = np.linspace(0.0, reach, _KNOTS)
        by_direction = [_along(lendings, knots) for lendings in self._directions]
        return knots, np.asarray(np.max(by_direction, axis=0))

    def _many(self, epsilons: Array) -> Array:
        """Chords between knots: delta is convex in e^epsilon, so they lie above it."""
        knots, deltas = self._curve
        # e^epsilon - 1 tells apart knots that are all but 0, too.
        chords = np.interp(np.expm1(np.minimum(epsilons, knots[-1])), np.expm1(knots), deltas)
        return np.asarray(up(chords, THOUSANDS_OF_ROUNDINGS))


def _along(lendings: Sequence[_Lending], knots: Array) -> Array:
    """At each knot the lending that is best at one of a few knots nearby."""
    if not lendings:
        return np.ones(knots.size)
    return np.concatenate(
        [
            _best(lendings, float(block[block.size // 2])).deltas(block)
            for block in np.array_split(knots, _CHOICES)
        ]
    )


def _best(lendings: Sequence[_Lending], epsilon: float) -> _Lending:
    deltas = [one.delta(epsilon) for one in lendings]
    return lendings[int(np.argmin(deltas))]


def _least(lendings: Sequence[_Lending], delta: float, revealed: float) -> float:
    """The least epsilon by the lending that looks best, at most `revealed`."""
    epsilon, used = revealed, None
    # What is best at this epsilon need not be so at the one that it gives.
    for _ in range(4 if lendings else 0):
        best = _best(lendings, 0.95 * epsilon)
        found = math.inf if best is used else _met(best, delta, epsilon)
        if not found < epsilon:
            break
        epsilon, used = found, best
    return epsilon


def _met(lending: _Lending, delta: float, most: float) -> float:
    """The least epsilon at which this lending meets delta; inf where it is not below `most`."""
    target = float(ndtri(delta))

    def excess(epsilon: float) -> float:
        # Quantiles fall about evenly with epsilon.
        return float(ndtri(max(lending.delta(epsilon), _LEAST_DELTA))) - target

    ends = excess(0.0), excess(most)
    if ends[0] <= 0.0 or not ends[1] <= 0.0:
        return 0.0 if ends[0] <= 0.0 else math.inf
    return close_in(excess, 0.0, min(ends[0], 40.0), most, ends[1], _TOLERANCE * most)
