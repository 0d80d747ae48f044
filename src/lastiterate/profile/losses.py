r"""A normal result moved by a hidden, random amount: what it leaks, cell by cell.

One-sided: :math:`P = E_Y N(Y, 1)` against :math:`Q = N(0, 1)`, with :math:`Y \ge 0` never revealed;
two-sided: against :math:`Q = E_Y N(-Y, 1)`.  The likelihood ratio increases in the result z, so
the best tests are thresholds, :math:`\{z > t\}` or its complement, and hockey-stick divergences, in
both directions, increase if Y is replaced by something larger: Y may be rounded up, even to
infinity.

The line is cut into cells.  In a cell of mass p under P and q under Q, where all logarithms of the
likelihood ratio lie in [a, b], the pair is dominated by two atoms, of losses a and b, with the same
two masses: that is a mean-preserving spread of the likelihood ratio, and hockey sticks are convex
in it.

**Sums.** Of independent results the masses p are first tilted,
:math:`p_x e^{\lambda x} / M(\lambda)`, then transformed (Fourier), multiplied and tilted back.  So
rounding, which is absolute in a transform, is multiplied by
:math:`M(\lambda) e^{-\lambda\varepsilon}` in delta at epsilon, and does not hide small deltas.
Sums beyond the end of the grid are bounded by Chernoff and counted as infinite; those below its
beginning come out at its end, which is no less pessimistic.

**A sum that grows.** One more result costs as much however many there are: the product of
transforms is kept, on a grid with room for several times as much.  Once the sum outgrows it, or a
result is taken back, all are transformed anew.  Any grid gives an upper bound.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    length_of,
    roundings,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.errors import InvalidParameter
from lastiterate.profile.profile import PrivacyProfile, check_order

_CELL_WIDTH = 0.08
_LARGEST_DEVIATION = 9.0  # standard deviations, beyond which there is 1e-19
_NEGLIGIBLE_MASS = 1e-18
_LARGEST_LOSS = 700.0  # a loss beyond which a likelihood ratio is no number
_LARGEST_LEVEL = 25.0  # an amount so large that it is taken for infinite
_LARGEST_LOST_MASS = 0.5  # beyond which no guarantee is of any use
_CELLS = 1 << 15
_TAIL_LOG = 38.0  # minus the logarithm of the mass beyond the grid
_TILTS = 40
_LEAST_SPREAD = 1e-30
_MILD_LOG = 6.0  # the logarithm of what a tilt adds to the rounding at epsilon 0
_ROOM_TO_GROW = 4  # how many times as much a new grid has room for
_LARGEST_LOG_BEYOND = (
    -37.0
)  # the logarithm of the mass beyond the grid from which on a wider one is made


@dataclass(frozen=True, eq=False)
class LossCells:
    """Masses under P and under Q, rounding included in `off` (of P) and `other_off` (of Q).

    The losses of cell i lie in [lows[i], highs[i]]; the `infinite` mass is in no cell.
    """

    lows: Array
    highs: Array
    masses: Array
    others: Array
    off: Array
    other_off: Array
    infinite: float

    def on_grid(self, cell: float, *, least: float, most: float) -> OnGrid:
        """Two atoms for each cell.

        Losses below `least` are raised to it, cells above `most` are counted as infinite.
        """
        whole = self.masses + self.off
        kept = self.highs <= most
        low = np.floor(np.clip(self.lows, least, most) / cell).astype(np.int64)
        high = np.ceil(np.clip(self.highs, least, most) / cell).astype(np.int64)
        high = np.maximum(high, low + 1)
        weight = np.exp(np.minimum(low * cell, _LARGEST_LOSS))
        apart = -np.expm1((low - high) * cell)
        rounding = self.off + self.other_off * weight + ulps(8 + 4 * np.abs(low * cell)) * whole
        excess = self.masses - self.others * weight + rounding
        upper = np.clip(excess / apart, 0.0, whole)
        upper = np.where((self.lows < least) | (low * cell > _LARGEST_LOSS), whole, upper)
        first = int(low.min())
        size = int(high.max()) - first + 1
        at_low = _masses_at(low - first, np.where(kept, whole - upper, 0.0), size)
        at_high = _masses_at(high - first, np.where(kept, upper, 0.0), size)
        infinite = self.infinite + float(whole[~kept].sum())
        return OnGrid(first, at_low + at_high, up(infinite, ulps(whole.size)))


@dataclass(frozen=True, eq=False)
class OnGrid:
    """Masses of P at consecutive points of a grid, and the infinite mass."""

    first: int
    masses: Array
    infinite: float


def _masses_at(points: IntArray, masses: Array, size: int) -> Array:
    return np.asarray(np.bincount(points, masses, size), dtype=np.float64)


_NOTHING_PROMISED = LossCells(
    *(np.zeros(1),) * 2, np.ones(1), np.zeros(1), *(np.zeros(1),) * 2, 1.0
)


def shift_losses(levels: Array, masses: Array, *, two_sided: bool = False) -> list[LossCells]:
    """The losses of P against Q and of Q against P; of one of them if they are the same.

    Y is levels[i] with probability masses[i], and infinite with the rest of 1.
    """
    if not (np.all(levels >= 0.0) and np.all(masses >= 0.0)):
        raise InvalidParameter("levels", levels, must_be="at least 0, as must be their masses")
    kept = (levels <= _LARGEST_LEVEL) & (masses > 0.0)
    levels, masses = levels[kept], masses[kept]
    lost = max(1.0 - math.fsum(masses), 0.0) + ulps(1)
    if not lost < _LARGEST_LOST_MASS:
        return [_NOTHING_PROMISED] * (1 if two_sided else 2)
    edges = _edges(levels, masses)
    ratios, error = _log_ratios(levels, masses, lost, edges)
    ours = _tails(levels, masses, edges)
    if two_sided:
        mirrored, other_error = _log_ratios(levels, masses, lost, -edges)
        ratios, error = ratios - mirrored, error + other_error
        theirs = _tails(-levels, masses, edges)
    else:
        theirs = _tails(np.zeros(1), np.ones(1), edges)
    low, high = ratios - error, ratios + error
    forwards = _cells(low, high, ours, theirs, below=0, infinite=ours.above[-1] + lost)
    if two_sided:
        return [forwards]
    # Below the first edge Q's losses against P may be as large as one likes.
    backwards = _cells(-high, -low, theirs, ours, below=1, infinite=theirs.below[0])
    return [forwards, backwards]


def _edges(levels: Array, masses: Array) -> Array:
    """Edges from far below 0 to where P has almost no mass left."""
    top = _LARGEST_DEVIATION + float(levels.max(initial=0.0))
    if top > _LARGEST_DEVIATION + 1.0:
        tops = np.linspace(_LARGEST_DEVIATION, top, 33)
        left = ndtr(levels - tops[:, None]) @ masses
        top = float(tops[min(int(np.searchsorted(-left, -_NEGLIGIBLE_MASS)), tops.size - 1)])
    return np.linspace(-_LARGEST_DEVIATION, top, int((top + _LARGEST_DEVIATION) / _CELL_WIDTH) + 2)


def _log_ratios(levels: Array, masses: Array, lost: float, at: Array) -> tuple[Array, Array]:
    """log of the average over Y of e^(Yz - Y^2/2), and a bound on its error."""
    exponents = at[:, None] * levels - 0.5 * levels * levels
    excess = np.expm1(exponents)
    total = excess @ masses - lost
    size = np.abs(excess) @ masses + lost
    steps = ulps(32.0 + levels.size + 4.0 * float(np.abs(exponents).max()))
    # Near 1 its distance from 1 tells the logarithm; where next to nothing is left, it does not.
    near = total > -0.5
    logs = np.log1p(np.where(near, total, 0.0))
    errors = steps * size / (1.0 + np.where(near, total, 0.0)) + ulps(4) * np.abs(logs)
    top = exponents.max(axis=1)
    with np.errstate(under="ignore"):
        sums = np.exp(exponents - top[:, None]) @ masses
    direct = top + np.log(sums)
    direct_errors = steps * (1.0 + np.abs(direct))
    return np.where(near, logs, direct), np.where(near, errors, direct_errors)


@dataclass(frozen=True, eq=False)
class _Tails:
    """Probabilities below and above each edge, each good to `error` of itself."""

    below: Array
    above: Array
    error: Array

    def between(self) -> tuple[Array, Array]:
        """The probabilities of the cells, by the smaller tail, and bounds on their errors."""
        falling = self.above[:-1] < self.below[1:]
        cells = np.where(falling, -np.diff(self.above), np.diff(self.below))
        larger = np.where(falling, self.above[:-1], self.below[1:])
        error = np.maximum(self.error[:-1], self.error[1:])
        return np.maximum(cells, 0.0), 2.0 * error * larger


def _tails(means: Array, masses: Array, edges: Array) -> _Tails:
    away = edges[:, None] - means
    error = ulps(32 + 2 * np.abs(edges) ** 2 + means.size)
    smaller = ndtr(-np.abs(away))
    larger = 1.0 - smaller
    beneath = away < 0.0
    below = np.where(beneath, smaller, larger) @ masses
    above = np.where(beneath, larger, smaller) @ masses
    return _Tails(below, above, error)


def _cells(
    lows: Array, highs: Array, ours: _Tails, theirs: _Tails, *, below: int, infinite: float
) -> LossCells:
    """Loss cells: beyond one end the loss is infinite, beyond the other it is that at the edge."""
    masses, off = ours.between()
    others, other_off = theirs.between()
    ends = (highs[0], ours.below[0]) if below == 0 else (highs[-1], ours.above[-1])
    cell_lows = np.minimum(lows[:-1], lows[1:])
    cell_highs = np.maximum(highs[:-1], highs[1:])
    # At that end only P's mass counts: as if Q had as little there as the loss allows.
    edge, left = float(ends[0]), float(ends[1])
    return LossCells(
        np.append(cell_lows, edge),
        np.append(cell_highs, edge),
        np.append(masses, left),
        np.append(others, 0.0),
        np.append(off, ulps(64) * left),
        np.append(other_off, 0.0),
        float(infinite),
    )


@dataclass(frozen=True, eq=False)
class Repeated:
    """Losses of so many independent results of one kind, by direction."""

    directions: Sequence[LossCells]
    times: int


class SummedLossesProfile(PrivacyProfile):
    """Independent results together.  A probability `lost` gets no guarantee.

    >>> from lastiterate.profile.losses import shift_losses
    >>> always = shift_losses(np.array([0.5]), np.array([1.0]))
    >>> round(SummedLossesProfile([Repeated(always, 4)]).epsilon(1e-5), 2)
    4.38
    """

    def __init__(self, results: Sequence[Repeated], *, lost: float = 0.0) -> None:
        count = max(len(result.directions) for result in results)
        self._totals = [
            _total([(one.directions[way], one.times) for one in results]) for way in range(count)
        ]
        self._lost = lost

    @classmethod
    def of_sums(cls, sums: Sequence[LossSum]) -> SummedLossesProfile:
        """The guarantee of sums that are known already, one for each direction."""
        profile = cls.__new__(cls)
        profile._totals = [one.total() for one in sums]
        profile._lost = 0.0
        return profile

    def __repr__(self) -> str:
        return f"SummedLossesProfile(lost={self._lost:.1e})"

    def deltas(self, epsilons: Array) -> Array:
        deltas: Array = np.array([total.deltas(epsilons) for total in self._totals])
        largest: Array = deltas.max(axis=0)
        return np.asarray(np.clip(up(largest + self._lost, ulps(4)), TINY, 1.0))

    def renyi(self, order: float) -> float:
        """inf: some of the mass is never known not to be infinite."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf: discretised losses do not fall off as a Gaussian's do."""
        return math.inf


class FiniteLosses:
    """Masses of P at increasing losses; the largest epsilon is answered as fast as the least."""

    def __init__(self, at: Array, masses: Array) -> None:
        self._at = at
        with np.errstate(over="ignore", under="ignore"):
            other = masses * np.exp(-np.maximum(at, -700.0))
        self._above = np.append(suffix_sums(masses), 0.0)
        self._other_above = np.append(suffix_sums(other), 0.0)

    def deltas(self, epsilons: Array) -> Array:
        """P(loss > epsilon) - e^epsilon Q(loss > epsilon), rounded up."""
        first = np.searchsorted(self._at, epsilons, side="right")
        upper = self._above[first]
        lower = np.exp(np.minimum(epsilons, 700.0)) * self._other_above[first]
        rounding = ulps(2 * (roundings(self._at.size) + 4))
        return np.asarray(np.maximum(upper - lower, 0.0) + rounding * (upper + lower))


class _Total:
    """Masses at the points of a grid, and those that rounding may have hidden beyond each."""

    def __init__(
        self, at: Array, masses: Array, infinite: float, tilt: float, log_slack: float
    ) -> None:
        self._finite, self._infinite = FiniteLosses(at, masses), infinite
        self._tilt, self._log_slack = tilt, log_slack

    def deltas(self, epsilons: Array) -> Array:
        exponents = np.minimum(self._log_slack - self._tilt * epsilons, 1.0)
        return np.asarray(self._finite.deltas(epsilons) + np.exp(exponents) + self._infinite)


def _total(parts: Sequence[tuple[LossCells, int]]) -> _Total:
    whole = LossSum(reach_of(parts))
    for cells, times in parts:
        whole.include(cells, times)
    return whole.total()


class LossSum:
    """A sum of independent losses, as the product of their transforms on one grid."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._cell = max((reach.high - reach.low) / (_CELLS - 2), TINY)
        self._start = math.floor(reach.low / self._cell)
        self._spectrum = np.ones(_CELLS // 2 + 1, dtype=np.complex128)
        self._infinite = self._log_total = self._rounding = self._beyond = 0.0
        self._offset = 0

    def include(self, cells: LossCells, times: int) -> None:
        """Add this many independent losses of one kind."""
        reach = self._reach
        grid = cells.on_grid(self._cell, least=-reach.high, most=reach.most)
        first, masses = grid.first, grid.masses
        self._infinite += times * grid.infinite
        points = self._cell * np.arange(first, first + masses.size, dtype=np.float64)
        log_sum, tilted = _tilt(points, masses, reach.mild)
        self._beyond += times * _tilt(points, masses, reach.tilt)[0]
        self._log_total += times * log_sum
        folded = np.bincount(np.arange(masses.size) % _CELLS, tilted, minlength=_CELLS)
        # Not in place: a copy shares the spectrum.
        self._spectrum = self._spectrum * np.fft.rfft(folded) ** times
        self._offset += times * first
        self._rounding += times * length_of(folded)

    @property
    def log_mass_beyond(self) -> float:
        """The logarithm of a bound on the mass beyond the end of the grid."""
        end = self._cell * (self._start + _CELLS)
        return self._beyond - self._reach.tilt * end + ulps(64) * abs(self._beyond)

    def total(self) -> _Total:
        """The masses of the sum."""
        cell, start, tilt = self._cell, self._start, self._reach.mild
        turned = (self._offset - start) % _CELLS
        summed = np.maximum(np.roll(np.fft.irfft(self._spectrum, _CELLS), turned), 0.0)
        at = cell * np.arange(start, start + _CELLS, dtype=np.float64)
        with np.errstate(under="ignore", over="ignore"):
            untilted = summed * np.exp(np.minimum(self._log_total - tilt * at, 700.0))
        masses = np.minimum(up(untilted, MILLIONS_OF_ROUNDINGS), 1.0)
        infinite = self._infinite + math.exp(min(self.log_mass_beyond, 0.0))
        spread = min(math.sqrt(_CELLS), 1.0 / math.sqrt(max(-math.expm1(-2.0 * tilt * cell), TINY)))
        steps = 16.0 * math.log2(_CELLS) + 64.0 + abs(self._log_total)
        slack = ulps(steps) * self._rounding * spread
        log_slack = self._log_total + math.log(max(slack, TINY))
        return _Total(at, masses, infinite, tilt, log_slack)


@dataclass(frozen=True)
class Reach:
    """Next to all of a sum lies in [low, high], as `tilt` shows; a `mild` one is for transforms.

    Single losses above `most` count as infinite.
    """

    low: float
    high: float
    tilt: float
    mild: float
    most: float


def reach_of(parts: Sequence[tuple[LossCells, int]]) -> Reach:
    """No loss is counted as less than minus the end."""
    every = [(cells.highs, cells.masses, times) for cells, times in parts]
    (high, tilt, mild), most = _end(every), math.inf
    usual = _end([_without_tail(*one) for one in every])[0]
    within = [
        (losses[losses <= 2.0 * usual], masses[losses <= 2.0 * usual], times)
        for losses, masses, times in every
    ]
    if all(losses.size for losses, _, _ in within) and 2.0 * (nearer := _end(within))[0] < high:
        # A grid that reaches losses which hardly ever occur is too coarse for all others.
        (high, tilt, mild), most = nearer, 2.0 * usual
    lows = [(-np.maximum(cells.lows, -high), cells.masses, times) for cells, times in parts]
    return Reach(-_end(lows)[0], high, tilt, mild, min(most, 2.0 * high))


def _end(parts: Sequence[tuple[Array, Array, int]]) -> tuple[float, float, float]:
    """Beyond which next to nothing of the sum lies, the tilt that shows it, and a milder one."""
    largest = math.fsum(times * float(losses.max()) for losses, _, times in parts)
    square = math.fsum(times * float(masses @ losses**2) for losses, masses, times in parts)
    spread = max(math.sqrt(square), _LEAST_SPREAD)
    tilts = np.geomspace(0.1 * _TAIL_LOG / max(largest, spread), 100.0 / spread, _TILTS)
    moments = np.zeros(_TILTS)
    for losses, masses, times in parts:
        moments += times * _log_moments(losses, masses, tilts)
    ends = (moments + _TAIL_LOG) / tilts
    best = int(np.argmin(ends))
    # Half of it, or what is tilted to the end comes out at the beginning.
    mild = tilts[(moments <= _MILD_LOG) & (tilts <= tilts[best] / 2)]
    end = max(float(ends[best]), spread)  # also where all losses are below 0
    return end, float(tilts[best]), float(mild.max(initial=0.0))


def _without_tail(losses: Array, masses: Array, times: int) -> tuple[Array, Array, int]:
    """The losses but for the largest, which hardly ever occur."""
    order = np.argsort(losses)
    above = np.cumsum(masses[order][::-1])[::-1]
    kept = order[above * times > math.exp(-_TAIL_LOG)]
    return (losses[kept], masses[kept], times) if kept.size else (losses, masses, times)


def _log_moments(losses: Array, masses: Array, tilts: Array) -> Array:
    exponents = tilts[:, None] * losses
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]) @ masses))


def _tilt(points: Array, masses: Array, tilt: float) -> tuple[float, Array]:
    """The logarithm of the sum of masses e^(tilt point), and these masses over it."""
    exponents = tilt * points
    top = float(exponents[masses > 0.0].max())
    with np.errstate(under="ignore"):
        weighted = masses * np.exp(np.minimum(exponents - top, 700.0))
    total = float(weighted.sum())
    return top + math.log(total), weighted / total


Kind = Callable[[str], Sequence[LossCells]]


class RunningSum:
    """Independent results of kinds that `losses_of` knows by their names."""

    def __init__(self, losses_of: Kind) -> None:
        self._losses_of = losses_of
        self._times: Counter[str] = Counter()
        self._sums: list[LossSum] = []  # one for each direction; none until they are asked for

    def __len__(self) -> int:
        return len(self._times)

    def add(self, kind: str, times: int) -> None:
        """Include more results of a kind; fewer if `times` is below 0."""
        self._times[kind] += times
        if self._times[kind] == 0:
            del self._times[kind]
        if not self._sums:
            return
        losses = self._losses_of(kind)
        if times < 0 or len(losses) > len(self._sums):
            self._sums = []
            return
        _include(self._sums, Repeated(losses, times))

    def profile(self, more: Sequence[Repeated]) -> SummedLossesProfile:
        """The guarantee of all of them and of these."""
        sums = self._sums_with(more)
        if not sums or any(one.log_mass_beyond > _LARGEST_LOG_BEYOND for one in sums):
            self._sums = self._transform_anew(more)
            sums = self._sums_with(more)
        return SummedLossesProfile.of_sums(sums)

    def _sums_with(self, more: Sequence[Repeated]) -> list[LossSum]:
        if any(len(one.directions) > len(self._sums) for one in more):
            return []
        sums = [copy.copy(one) for one in self._sums]
        for one in more:
            _include(sums, one)
        return sums

    def _transform_anew(self, more: Sequence[Repeated]) -> list[LossSum]:
        own = [Repeated(self._losses_of(kind), times) for kind, times in self._times.items()]
        ways = max(len(one.directions) for one in [*own, *more])
        sums = [
            LossSum(
                _reach_with_room(
                    [(_losses_of_direction(one, way), one.times) for one in [*own, *more]]
                )
            )
            for way in range(ways)
        ]
        for one in own:
            _include(sums, one)
        return sums


def _include(sums: Sequence[LossSum], result: Repeated) -> None:
    for way, one in enumerate(sums):
        one.include(_losses_of_direction(result, way), result.times)


def _losses_of_direction(result: Repeated, way: int) -> LossCells:
    """The losses of one direction; a result that has one only is the same in both."""
    return result.directions[way % len(result.directions)]


def _reach_with_room(parts: Sequence[tuple[LossCells, int]]) -> Reach:
    """The reach of all from as many as there are to several times as many."""
    now = reach_of(parts)
    later = reach_of([(cells, _ROOM_TO_GROW * times) for cells, times in parts])
    low, high = min(now.low, later.low), max(now.high, later.high)
    return Reach(low, high, later.tilt, later.mild, max(now.most, later.most))
