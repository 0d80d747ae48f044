"""The bound for shuffled runs whose secret position stays hidden: transport and joint transport.

The average over positions (`shuffling.average`) holds even if the position is revealed with the
last iterate.  With many batches in an epoch nearly all of its epsilon is the probability of the
very last batch.  The bound here transports mass of late positions to earlier ones.
`docs/tightness.md#transport` and `docs/tightness.md#joint-transport` have the theorems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from lastiterate._numerics.rounding import (
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    at_most,
    down,
    ulps,
    up,
)
from lastiterate._numerics.search import close_in
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.joint_transport import TransportSearch
from lastiterate.bounds.shuffling.positions import (
    FixedPositions,
    Positions,
    PositionsEachEpoch,
    ShuffledSteps,
)
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile
from lastiterate.errors import InvalidParameter
from lastiterate.profile.curve import chords
from lastiterate.profile.gaussian import GaussianMixtureProfile, deltas_on_both_sides
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps

LARGEST_MU = 30.0  # above it no transport is feasible
_LATE_SHARES = (0.001, 0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6)  # of positions, all tried
_LARGE_WEIGHT = 0.1  # of the last group
_FEWEST_POSITIONS = 10  # joint transport has too little to mix over with fewer
_MOST_RELEASE_NOISE = 1e9  # in units of a step's noise; more is not used
_MARGIN = TENS_OF_THOUSANDS_OF_ROUNDINGS  # by which the available mass exceeds the needed
_FEW_EPSILONS = 4  # up to so many are solved one by one, more by chords
_KNOTS, _BLOCKS = 400, 8  # of the curve by chords; a block of knots shares a transport
_NEGLIGIBLE_DELTA = 1e-15  # where the curve by chords ends
_LEAST_DELTA = 1e-300  # for which epsilon is searched
_FINE_GRID, _COARSE_GRID = np.linspace(0.0, 1.0, 33), np.linspace(0.0, 1.0, 5)
_FINE_ROUNDS, _COARSE_ROUNDS = 4, 10  # of the search for the multiplier, grid within grid
_CELLS_AT_ONCE = 1 << 19  # of an array, for the sake of memory
_LEAST_MULTIPLIER, _LARGEST_MULTIPLIER = -5.0, 60.0  # z, in standard deviations
_TOLERANCE = 1e-7  # of epsilon, relative to that of a revealed position
_LARGEST_EPSILON = 600.0  # above it nothing is transported, since e^epsilon overflows
_LARGEST_EXPONENT = 600.0  # so that no power overflows


def shuffled_joint_transport(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a secret position with joint transport from late positions to early ones.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)`, of the
    best transport between positions (`TransportProfile`), and of :math:`\sum_e p_e
    B_e(\alpha_e)`, with :math:`B_e(a) = E(e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} X - a)_+`
    and :math:`X = \sum_j F_j e^{\rho_j z_j - \rho_j^2/2}` over windows of the last steps, plus the
    terms of late positions that are retained or transported one by one.  The mu of the example at
    a late position t against it at a receiving position e is that of participations in the steps
    of both.

    **Holds when.** single examples are shuffled uniformly and in secret, once or before every
    epoch; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not changed
    by norm clipping; step size and noise are constant.  An example is replaced, or left out; then
    no gradient exceeds the sensitivity, so that two differ by at most twice it.  A bounded domain
    is allowed, and not used.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches and
    earlier ones left little.

    **Source.** This library (`docs/tightness.md#transport`, `docs/tightness.md#joint-transport`);
    Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** sums of Gaussian curves; and sums of log-normal variables on a grid, larger in
    convex order, and one integral by chords; rounded up.  Positions, windows and shares are
    searched for; any choice is valid, and feasibility is checked with a margin.
    """
    quick = shuffled_transport(run)
    positions = positions_of(run)
    if not (positions.mus().max() < LARGEST_MU and has_many_positions(positions)):
        return quick
    directions = [
        TransportSearch([(1.0, positions)], receiving, late)
        for receiving, late in sensitivity_factors(run)
    ]
    return ShuffledProfile(quick, directions)


@lru_cache(maxsize=4)
def shuffled_transport(run: TrainingRun) -> TransportProfile:
    """The quick part of `shuffled_joint_transport`: late positions are transported one by one.

    The number of late positions is chosen among a few; any choice is valid.
    """
    positions = positions_of(run)
    law = position_law(run, positions, transports=float(positions.mus().max()) < LARGEST_MU)
    return TransportProfile(law.weights, law.mus, law.directions)


def position_law(run: TrainingRun, positions: Positions, *, transports: bool) -> PositionLaw:
    """The law of the position, with a transport for each number of late positions, or none."""
    weights = positions.weights()
    counts = _late_counts(weights) if transports else []
    directions = [
        [positions.transport_mus(count, receiving, late) for count in counts]
        for receiving, late in sensitivity_factors(run)
    ]
    return PositionLaw(weights, positions.mus(), directions)


def positions_of(
    run: TrainingRun, short_steps: ShortSteps | None = None, earlier_factor: float = 1.0
) -> Positions:
    """The law of an example's position in this run's secret order; step and noise are constant.

    With `short_steps` earlier noise hides a participation, too.  If the order is drawn before every
    epoch, participations in earlier epochs count `earlier_factor` times.
    """
    sensitivity = float(quantities.sensitivities(run)[0])
    noise = float(quantities.noises(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASE_NOISE)
    steps = ShuffledSteps(
        gap=float(quantities.gaps(run)[0]),
        ratio=at_least(sensitivity / noise, ulps=quantities.WIDENING),
        release_in_steps=at_most(released * released, ulps=8),
        examples=run.batches.examples,
        batch_size=run.batches.batch_size,
        share=run.batches.share,
        epoch_length=run.batches.batches_per_epoch,
        steps=run.steps,
    )
    if run.batches.resampling is Resampling.ONCE:
        return FixedPositions(steps, short_steps)
    return PositionsEachEpoch(steps, short_steps, earlier_factor)


def sensitivity_factors(run: TrainingRun) -> list[tuple[float, float]]:
    """Factors of the sensitivity at receiving and at late positions, by order of the data sets.

    If an example is left out, two examples differ by twice the sensitivity, and the example and
    nothing by once.
    """
    return [(1.0, 1.0)] if run.adjacency == "replace" else [(1.0, 2.0), (2.0, 1.0)]


def has_many_positions(positions: Positions) -> bool:
    """Whether joint transport has enough positions to mix over."""
    return positions.weights().size >= _FEWEST_POSITIONS


def _late_counts(weights: Array) -> list[int]:
    """The numbers of late positions that are tried."""
    before = np.cumsum(weights) - weights
    counts = {int(np.searchsorted(before, share)) for share in _LATE_SHARES}
    if weights[-1] > _LARGE_WEIGHT:
        # In a run shorter than an epoch most examples have no position, which may receive alone.
        counts.add(weights.size - 1)
    return sorted(count for count in counts if 0 < count < weights.size)


def _irregular(run: TrainingRun) -> str | None:
    once = run.batches.resampling is Resampling.ONCE
    return "another order in every epoch" if once and run.batches.period is None else None


REGULAR = Hypothesis(
    "positions that are visited in the same order every epoch, if they are drawn once",
    _irregular,
    "visit the batches in the same order",
)


JOINT_TRANSPORT = Bound(
    id="random-order/shuffled/joint-transport",
    gives="the average over the example's position in a secret order, which stays hidden",
    covers=tuple(
        rule for rule in rules(Resampling.ONCE, Resampling.EACH_EPOCH) if rule.exchangeable
    ),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        REGULAR,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Joint transport of hidden positions",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=shuffled_joint_transport,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the example's secret position, and hides late positions jointly",
)


@dataclass(frozen=True, eq=False)
class PositionLaw:
    """A secret position: mu_j-GDP with probability weights[j], and transports between positions.

    Each of `directions` lists possible transports for one order of the two data sets.  A transport
    is an array of mus: entry t is the mu of position t on one data set against any position from
    `len(transport)` on, on the other data set.
    """

    weights: Array
    mus: Array
    directions: Sequence[Sequence[Array]]


class TransportProfile(PrivacyProfile):
    """The privacy profile of a secret position: mu_j-GDP with probability weight_j.

    `directions` are as in `PositionLaw`; the guarantee is the worse of the directions, each by the
    best of its transports.

    Examples
    --------
    >>> weights, mus = [0.001, 0.999], [1.0, 0.1]
    >>> secret = TransportProfile(weights, mus, [[np.array([1.01])]])
    >>> secret.epsilon(1e-6) < 0.5 < 2.0 < GaussianMixtureProfile(weights, mus).epsilon(1e-6)
    True
    """

    def __init__(
        self, weights: ArrayLike, mus: ArrayLike, directions: Sequence[Sequence[Array]]
    ) -> None:
        self._revealed = GaussianMixtureProfile(weights, mus)
        shares, values = self._revealed.weights, np.array(mus, dtype=np.float64)
        if any(directions) and not (shares.size == values.size and np.all(np.isfinite(values))):
            raise InvalidParameter("weights", weights, must_be="positive, with mus below inf")
        self._last_answer = math.nan, math.nan  # delta and epsilon, for repeated calls
        self._directions: list[list[_Transport] | list[_AverageTransport]] = [
            [_Transport(shares, values, transport_mus) for transport_mus in transports]
            for transports in directions
        ]

    @classmethod
    def average(
        cls, parts: Sequence[tuple[float, PositionLaw]], *, failure: float
    ) -> TransportProfile:
        """The profile if one of several laws holds, with these probabilities, or none.

        All laws must have the same number of transports.  `failure` is added to delta.
        """
        weights = np.concatenate([share * law.weights for share, law in parts])
        profile = cls(weights, np.concatenate([law.mus for _, law in parts]), [])
        known = profile._revealed
        profile._revealed = GaussianMixtureProfile(known.weights, known.mus, lost=failure)
        profile._directions = [
            [_AverageTransport(parts, way, number, failure) for number in range(len(transports))]
            for way, transports in enumerate(parts[0][1].directions)
        ]
        return profile

    def __repr__(self) -> str:
        return f"TransportProfile({self._revealed!r})"

    def deltas(self, epsilons: Array) -> Array:
        few = epsilons.size <= _FEW_EPSILONS
        hidden = self._one_by_one(epsilons) if few else chords(epsilons, *self._curve)
        return np.asarray(np.minimum(self._revealed.deltas(epsilons), hidden))

    def epsilon(self, delta: float) -> float:
        last_delta, epsilon = self._last_answer
        if last_delta != delta:
            epsilon = self._epsilon(delta)
            self._last_answer = delta, epsilon
        return epsilon

    def _epsilon(self, delta: float) -> float:
        revealed = self._revealed.epsilon(delta)
        if not 0.0 < revealed < math.inf or delta < _LEAST_DELTA:
            return revealed
        return max(_least_epsilon(transports, delta, revealed) for transports in self._directions)

    def renyi(self, order: float) -> float:
        """The Renyi divergence as if the position were revealed."""
        return self._revealed.renyi(order)

    def gdp(self) -> float:
        """mu as if the position were revealed: at large epsilon the most exposed one counts."""
        return self._revealed.gdp()

    def _one_by_one(self, epsilons: Array) -> Array:
        """The least delta of all transports, in the worse direction."""
        by_direction = [
            [min((one.delta(e) for one in transports), default=1.0) for e in epsilons.tolist()]
            for transports in self._directions
        ]
        return np.asarray(np.max(by_direction, axis=0))

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Knots of epsilon and deltas there, between which chords lie above delta."""
        negligible = max(_NEGLIGIBLE_DELTA, 2.0 * self._revealed.lost)
        reach = min(self._revealed.epsilon(negligible), _LARGEST_EPSILON)
        knots = np.linspace(0.0, reach, _KNOTS)
        by_direction = [_deltas_by_blocks(transports, knots) for transports in self._directions]
        return knots, np.asarray(np.max(by_direction, axis=0))


class _Transport:
    r"""The best transport of the first positions to all others, at every epsilon.

    Position j has probability :math:`p_j` and the guarantee :math:`\mu_j`-GDP.  The average
    :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)` holds even if the position is revealed.  Here
    mass of the few *late* positions t is transported to the many *receiving* positions e, which
    lowers delta where late positions are rare and much more exposed.

    A transport is given by shares :math:`y_t` that late positions retain, by multipliers
    :math:`\lambda_t` of :math:`Q_e`, and by the multipliers :math:`\alpha_e` that receiving
    positions keep.  Every transport is valid if the receiving positions give up as much of
    :math:`e^\varepsilon Q_e` as the transported mass needs, and that is checked.  The best one has
    a single Lagrange multiplier z:

    .. math:: \log\alpha_e = \min(\varepsilon, \mu_e (z - \mu_e/2)) , \quad
        \log\lambda_t = \mu_t' (z - \mu_t'/2) , \quad
        \log(e^\varepsilon/y_t) = \max(\varepsilon, \mu_t (z - \mu_t' + \mu_t/2)) ,

    where :math:`\mu_t'` is the largest mu of t against a receiving position
    (`docs/tightness.md#transport` has the theorem and its proof).
    """

    def __init__(self, weights: Array, mus: Array, transport_mus: Array) -> None:
        count = transport_mus.size
        if not 0 < count < mus.size or not np.all(np.isfinite(transport_mus)):
            raise InvalidParameter(
                "transport_mus", transport_mus, must_be="finite, for some positions but not all"
            )
        self._late, self._receiving = weights[:count], weights[count:]
        self._late_mus, self._receiving_mus = mus[:count], mus[count:]
        # Raising a mu is always valid; the closed form assumes at least the position's own.
        self._transport_mus = np.maximum(transport_mus, self._late_mus)

    def delta(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: Array) -> Array:
        positions = self._late.size + self._receiving.size
        at_once = max(1, _CELLS_AT_ONCE // (_COARSE_GRID.size * positions))
        blocks = (epsilons[k : k + at_once] for k in range(0, epsilons.size, at_once))
        return np.concatenate([self._deltas(block) for block in blocks])

    def _deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon, by the largest feasible multiplier; 1 if there is none."""
        few = epsilons.size <= _FEW_EPSILONS
        grid, rounds = (_FINE_GRID, _FINE_ROUNDS) if few else (_COARSE_GRID, _COARSE_ROUNDS)
        at = np.minimum(epsilons, _LARGEST_EPSILON)[:, None, None]
        low = np.full((epsilons.size, 1), _LEAST_MULTIPLIER)
        width = _LARGEST_MULTIPLIER - _LEAST_MULTIPLIER
        for _ in range(rounds):
            multipliers = low + width * grid
            # A larger multiplier makes less mass available, and needs more.
            feasible = self._feasible(at, multipliers[:, :, None])
            last = grid.size - 1 - np.argmax(feasible[:, ::-1], axis=1)[:, None]
            low = np.take_along_axis(multipliers, last, axis=1)
            width /= grid.size - 1
        deltas = self._deltas_at(at[:, 0], low)
        valid = self._feasible(at, low[:, :, None])[:, 0] & (epsilons <= _LARGEST_EPSILON)
        return np.where(valid, deltas, 1.0)

    def _feasible(self, epsilons: Array, multipliers: Array) -> NDArray[np.bool_]:
        """Whether receiving positions give up what the transported mass needs."""
        kept, needed_per_mass, retained = self._terms(epsilons, multipliers)
        # In units of e^epsilon.
        available = -np.expm1(kept - epsilons) @ self._receiving
        relative = np.exp(np.minimum(needed_per_mass - epsilons, _LARGEST_EXPONENT))
        needed = (-np.expm1(retained) * relative) @ self._late
        return np.asarray(up(needed, _MARGIN) <= down(available, _MARGIN))

    def _terms(self, epsilons: Array, multipliers: Array) -> tuple[Array, Array, Array]:
        """The logarithms of alpha_e, of lambda_t, and of the retained shares y_t."""
        late, receiving, transported = self._late_mus, self._receiving_mus, self._transport_mus
        kept = np.minimum(epsilons, receiving * (multipliers - receiving / 2))
        needed_per_mass = transported * (multipliers - transported / 2)
        retained = np.minimum(0.0, epsilons - late * (multipliers - transported + late / 2))
        return np.asarray(kept), np.asarray(needed_per_mass), np.asarray(retained)

    def _deltas_at(self, epsilons: Array, multipliers: Array) -> Array:
        kept, needed_per_mass, retained = self._terms(epsilons, multipliers)
        share = np.exp(retained)
        of_retained = share * deltas_on_both_sides(self._late_mus, epsilons - retained)
        of_transported = -np.expm1(retained) * deltas_on_both_sides(
            self._transport_mus, needed_per_mass
        )
        of_receiving = deltas_on_both_sides(self._receiving_mus, kept) @ self._receiving
        count = self._late.size + self._receiving.size
        total = (of_retained + of_transported) @ self._late + of_receiving
        return np.asarray(np.minimum(up(total, ulps(count + 16)), 1.0))


class _AverageTransport:
    """The average of transports over a public choice among position laws, and failures."""

    def __init__(
        self, parts: Sequence[tuple[float, PositionLaw]], way: int, number: int, failure: float
    ) -> None:
        self._shares = [share for share, _ in parts]
        self._transports = [
            _Transport(law.weights, law.mus, law.directions[way][number]) for _, law in parts
        ]
        self._failure = failure

    def delta(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: Array) -> Array:
        parts = np.array([one.deltas(epsilons) for one in self._transports])
        total = np.array(self._shares) @ parts + self._failure
        return np.asarray(np.minimum(up(total, ulps(len(parts) + 4)), 1.0))


_Transports = Sequence[_Transport] | Sequence[_AverageTransport]


def _deltas_by_blocks(transports: _Transports, knots: Array) -> Array:
    """delta at each knot, by the transport that is best in the middle of its block."""
    if not transports:
        return np.ones(knots.size)
    return np.concatenate(
        [
            _best(transports, float(block[block.size // 2])).deltas(block)
            for block in np.array_split(knots, _BLOCKS)
        ]
    )


def _best(transports: _Transports, epsilon: float) -> _Transport | _AverageTransport:
    """The transport with the least delta at this epsilon."""
    deltas = [one.delta(epsilon) for one in transports]
    return transports[int(np.argmin(deltas))]


def _least_epsilon(transports: _Transports, delta: float, revealed: float) -> float:
    """The least epsilon of the transport that looks best, at most `revealed`."""
    epsilon, used = revealed, None
    # The best transport at this epsilon need not be the best at the epsilon that it gives.
    for _ in range(4 if transports else 0):
        best = _best(transports, 0.95 * epsilon)
        next_epsilon = math.inf if best is used else _epsilon_of(best, delta, epsilon)
        if not next_epsilon < epsilon:
            break
        epsilon, used = next_epsilon, best
    return epsilon


def _epsilon_of(transport: _Transport | _AverageTransport, delta: float, most: float) -> float:
    """The least epsilon at which this transport meets delta; inf if it is not below `most`."""
    target = float(ndtri(delta))

    def excess(epsilon: float) -> float:
        # Normal quantiles of delta fall about evenly with epsilon.
        return float(ndtri(max(transport.delta(epsilon), _LEAST_DELTA))) - target

    ends = excess(0.0), excess(most)
    if ends[0] <= 0.0 or not ends[1] <= 0.0:
        return 0.0 if ends[0] <= 0.0 else math.inf
    return close_in(excess, 0.0, min(ends[0], 40.0), most, ends[1], _TOLERANCE * most)
