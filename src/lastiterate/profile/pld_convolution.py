r"""Several independent results, each with losses in cells: their sum, by Fourier transforms.

The masses p of a result are first tilted, :math:`p_x e^{\lambda x} / M(\lambda)`, then transformed,
multiplied and tilted back.  So rounding, which is absolute in a transform, is multiplied by
:math:`M(\lambda) e^{-\lambda\varepsilon}` in delta at epsilon, and does not hide small deltas.
Sums beyond the end of the grid are bounded by Chernoff and counted as infinite; those below its
beginning come out at its end, which is no less pessimistic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    length_of,
    roundings,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.profile.gaussian_mixture_pld import LossCells
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order

_CELLS = 1 << 15
_NEVER = 38.0  # minus the logarithm of the mass beyond the grid
_TILTS = 40
_LEAST_SPREAD = 1e-30
_MILD = 6.0  # the logarithm of what a tilt adds to the rounding at epsilon 0


@dataclass(frozen=True, eq=False)
class Repeated:
    """Losses of so many independent results of one kind, by direction."""

    directions: Sequence[LossCells]
    times: int


class SummedLossesProfile(PrivacyProfile):
    """Independent results together.  A probability `lost` gets no guarantee.

    >>> from lastiterate.profile.gaussian_mixture_pld import shift_losses
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


class _Total:
    """Masses at the points of a grid, and those that rounding may have hidden beyond each."""

    def __init__(
        self, at: Array, masses: Array, infinite: float, tilt: float, log_slack: float
    ) -> None:
        self._at, self._infinite, self._tilt, self._log_slack = at, infinite, tilt, log_slack
        with np.errstate(over="ignore", under="ignore"):
            other = masses * np.exp(-np.maximum(at, -700.0))
        self._above = np.append(suffix_sums(masses), 0.0)
        self._other_above = np.append(suffix_sums(other), 0.0)

    def deltas(self, epsilons: Array) -> Array:
        first = np.searchsorted(self._at, epsilons, side="right")
        upper = self._above[first]
        lower = np.exp(np.minimum(epsilons, 700.0)) * self._other_above[first]
        rounding = ulps(2 * (roundings(self._at.size) + 4))
        difference = np.maximum(upper - lower, 0.0) + rounding * (upper + lower)
        exponents = np.minimum(self._log_slack - self._tilt * epsilons, 1.0)
        return np.asarray(difference + np.exp(exponents) + self._infinite)


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
        """Add so many independent losses of one kind."""
        reach = self._reach
        grid = cells.on_grid(self._cell, least=-reach.high, most=reach.most)
        first, masses = grid.first, grid.masses
        self._infinite += times * grid.infinite
        points = self._cell * np.arange(first, first + masses.size, dtype=np.float64)
        log_sum, tilted = _tilted(points, masses, reach.mild)
        self._beyond += times * _tilted(points, masses, reach.tilt)[0]
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
    tilts = np.geomspace(0.1 * _NEVER / max(largest, spread), 100.0 / spread, _TILTS)
    moments = np.zeros(_TILTS)
    for losses, masses, times in parts:
        moments += times * _log_moments(losses, masses, tilts)
    ends = (moments + _NEVER) / tilts
    best = int(np.argmin(ends))
    # Half of it, or what is tilted to the end comes out at the beginning.
    mild = tilts[(moments <= _MILD) & (tilts <= tilts[best] / 2)]
    end = max(float(ends[best]), spread)  # also where all losses are below 0
    return end, float(tilts[best]), float(mild.max(initial=0.0))


def _without_tail(losses: Array, masses: Array, times: int) -> tuple[Array, Array, int]:
    """The losses but for the largest, which hardly ever occur."""
    order = np.argsort(losses)
    above = np.cumsum(masses[order][::-1])[::-1]
    kept = order[above * times > math.exp(-_NEVER)]
    return (losses[kept], masses[kept], times) if kept.size else (losses, masses, times)


def _log_moments(losses: Array, masses: Array, tilts: Array) -> Array:
    exponents = tilts[:, None] * losses
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]) @ masses))


def _tilted(points: Array, masses: Array, tilt: float) -> tuple[float, Array]:
    """The logarithm of the sum of masses e^(tilt point), and these masses over it."""
    exponents = tilt * points
    top = float(exponents[masses > 0.0].max())
    with np.errstate(under="ignore"):
        weighted = masses * np.exp(np.minimum(exponents - top, 700.0))
    total = float(weighted.sum())
    return top + math.log(total), weighted / total
