r"""Exponential moments :math:`E\,e^{sq}` of the least energy q of random participations.

In each of the steps before the end the example takes part with probability p, independently.  A
participation of age j has size :math:`c^j`, the noise of that age variance :math:`c^{2j}`, and
noise on release counts as h steps.  A recursion from the end backwards bounds the moments
(`docs/tightness.md#participation-energy`); with next to no contraction the law of the faces of the
convex minorant may be better (`face_moments`).  All terms are positive, so there is no least delta.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate.bounds.subsampling.participation_energy.block_shifts import (
    Value,
    at_the_end,
    before_block,
    blocks,
    grid_of_distances,
)
from lastiterate.bounds.subsampling.participation_energy.counted_moments import (
    CountedMoments,
    counted_steps,
)
from lastiterate.bounds.subsampling.participation_energy.face_moments import (
    MOST_STEPS,
    EnergyMoments,
    face_moments,
)

_LARGEST_GAP = 0.9  # more contraction is not used
_LITTLE = 0.5  # memories, up to which it may be better to ignore contraction
_MEMORY = 45.0  # memories; older participations are e^-45 of the whole


def energy_moments(
    *,
    gap: float,
    steps: int,
    probability: float,
    release: float,
    rates: tuple[float, ...],
    cap: float = math.inf,
) -> EnergyMoments:
    """log E e^(s q) of the least energy q for each rate s, with sensitivity and noise 1.

    The release counts as `release` steps.  The residual distance never exceeds `cap`.
    """
    cache = _cache(min(gap, _LARGEST_GAP), steps, probability, release, cap)
    return cache.at(rates)


class _MomentCache:
    """Moments of one walk at all rates so far; nearby noise levels share most of them."""

    def __init__(self, compute: Callable[[Array], EnergyMoments]) -> None:
        self._compute, self._logs = compute, dict[float, float]()
        self._lost = self._extra_mu = 0.0

    def at(self, rates: tuple[float, ...]) -> EnergyMoments:
        if new := sorted(set(rates) - set(self._logs)):
            moments = self._compute(np.array(new, dtype=np.float64))
            self._logs |= zip(new, moments.logs.tolist(), strict=True)
            self._lost = max(self._lost, moments.lost)
            self._extra_mu = max(self._extra_mu, moments.extra_mu)
        logs = np.array([self._logs[rate] for rate in rates])
        return EnergyMoments(logs, self._lost, self._extra_mu)


@lru_cache(maxsize=32)
def _cache(gap: float, steps: int, probability: float, release: float, cap: float) -> _MomentCache:
    return _MomentCache(partial(_moments, gap, steps, probability, release, cap))


def _moments(
    gap: float, steps: int, probability: float, release: float, cap: float, rates: Array
) -> EnergyMoments:
    recursive = recursive_moments(log_of(gap), steps, probability, release, rates, cap)
    if not (gap * steps < _LITTLE and steps < MOST_STEPS):
        return recursive
    faces = face_moments(steps, probability, release, rates)
    logs = np.minimum(recursive.logs, faces.logs)
    return EnergyMoments(logs, recursive.lost + faces.lost, recursive.extra_mu)


def recursive_moments(
    log_c: float,
    steps: int,
    probability: float,
    release: float,
    rates: Array,
    cap: float = math.inf,
) -> EnergyMoments:
    """Moments by shifts that know the past and the number of participations in the last steps.

    The residual distance never exceeds `cap`.
    """
    span = min(steps, math.ceil(_MEMORY / -log_c)) if log_c < 0.0 else steps
    grid = grid_of_distances(log_c, span, probability)
    last = counted_steps(log_c, span, probability, grid[1])
    counted = CountedMoments(grid, rates, release, probability, last) if last else None
    value: Value = at_the_end(rates, release)
    least = np.full(rates.size, np.inf)
    lost = 0.0
    for block in blocks(log_c, span, release):
        if counted is not None and block.age + block.steps > last:
            lost += counted.lost(block.age)
            value, counted = counted.best_with(value, block.age), None
        value, lost_in_block = before_block(value, block, probability, grid, rates)
        lost += lost_in_block
        if counted is not None:
            counted.add_block(block)
        if cap < span:
            least = np.minimum(least, value(np.array([cap + 1.0]))[:, 0])
    if counted is not None:
        lost += counted.lost(span)
        value = counted.best_with(value, span)
    least = np.minimum(least, value(np.zeros(1))[:, 0])
    extra_mu = 0.0  # of older participations
    if span < steps:
        kept = power(log_c, span) / math.sqrt(sum_of_powers(2.0 * log_c, span) + release)
        extra_mu = up(kept * sum_of_powers(log_c, steps - span), MILLIONS_OF_ROUNDINGS)
    logs = up(least, MILLIONS_OF_ROUNDINGS) + MILLIONS_OF_ROUNDINGS
    return EnergyMoments(logs, lost, extra_mu)
