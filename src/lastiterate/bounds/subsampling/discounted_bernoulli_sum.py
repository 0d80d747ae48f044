r"""The law of the discounted sum of participations :math:`\sum_i V_i c^i`, rounded up.

Each of `count` steps brings, with probability p and independently, an arrival that has since shrunk
by a factor c a step.  Over so few steps that next to nothing shrinks, the sum is at most the number
of arrivals, which is binomial.  The law for twice as many steps is that of :math:`Z + c^k Z'`,
rounded up to a grid, which is a convolution; its tail is no larger than Chernoff's bound.  Where
very much arrives, that bound is all that is used.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.geometric import log_of, sum_of_powers
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    ulps,
    up,
)
from lastiterate._numerics.sums import length_of, suffix_sums

_CELLS = 1 << 14
_FEWEST = 64  # steps that are not halved for the sake of speed
_MUCH = 1_500.0  # arrivals
_NOT_SHRUNK = 4e-3
_FORGOTTEN = 14.0  # minus the logarithm of what older arrivals add, over what comes on average
_BLOCKS = 1 << 9
_PARTS = 40  # of a standard deviation
_NEGLIGIBLE = 1e-19
_CENTRE, _COARSER = 2.5, 8.0  # standard deviations, and how much farther apart beyond
_TILTS = np.linspace(0.02, 10.0, 100)  # over the standard deviation
_LARGEST_TILT = 500.0


@dataclass(frozen=True, eq=False)
class Arrived:
    """At most levels[i] with probability masses[i]; what is missing from 1 may be anything."""

    levels: Array
    masses: Array


@lru_cache(maxsize=512)
def arrived(gap: float, count: int, probability: float) -> Arrived:
    """The law of the sum over `count` steps, the latest of which has not shrunk."""
    log_c = log_of(gap)
    kept, older = count, 0.0
    forgotten = _FORGOTTEN - math.log(probability)
    if count * -log_c > forgotten:
        kept = math.ceil(forgotten / -log_c)
        if kept < count:  # as if each of the others had brought something
            older = up(math.exp(kept * log_c) / gap, MILLIONS_OF_ROUNDINGS)
    whole = up(sum_of_powers(log_c, kept, gap=gap), MILLIONS_OF_ROUNDINGS)
    mean = probability * whole
    if probability >= 1.0:
        law = Arrived(np.array([whole]), np.ones(1))
    elif kept * -log_c <= _NOT_SHRUNK and mean <= _MUCH:
        law = _counted(kept, probability)
    elif mean > _MUCH:
        law = _by_tails(log_c, kept, probability)
    else:
        law = _on_grid(log_c, kept, probability, whole)
    return Arrived(law.levels + older, law.masses)


def _counted(count: int, probability: float) -> Arrived:
    """The number of arrivals."""
    mean = count * probability
    most = min(count, math.ceil(mean + 10.0 * math.sqrt(mean) + 30.0))
    numbers = np.arange(most, dtype=np.float64)
    odds = math.log(probability) - math.log1p(-probability)
    logs = np.cumsum(np.log((count - numbers) / (numbers + 1.0)) + odds)
    masses = np.exp(np.append(0.0, logs) + count * math.log1p(-probability))
    beyond = 0.0 if most == count else _NEGLIGIBLE
    # Each logarithm is off by some ulps of 20, and up to two thousand are added.
    law = _rounded_up(masses, relative=MILLIONS_OF_ROUNDINGS, absolute=beyond)
    return _coarser(np.arange(most + 1.0), law)


def _on_grid(log_c: float, count: int, probability: float, whole: float) -> Arrived:
    variance = probability * (1.0 - probability) * sum_of_powers(2.0 * log_c, count)
    mean = probability * whole
    few = min(12.0, 45.0 / (1.0 + math.log1p(1.0 / mean)))  # if hardly anything comes
    largest = min(whole, mean + 9.0 * math.sqrt(variance) + few)
    per_arrival = max(int((_CELLS - 64) / (largest + 1.0)), 1)  # cells
    law, off = _doubled(log_c, count, probability, per_arrival)
    levels = up(np.arange(law.size) / per_arrival, ulps(8))
    coarse = _coarser(levels, _rounded_up(law, relative=0.0, absolute=off))
    bounds = _chernoff(log_c, count, probability, coarse.levels)
    beyond = off + max(1.0 - math.fsum(law), 0.0)  # what left the grid, too
    above = np.append(suffix_sums(coarse.masses) + beyond, beyond)
    above[1:] = np.minimum(above[1:], bounds)
    above[0] = 1.0
    return Arrived(coarse.levels, np.maximum(-np.diff(above), 0.0))


def _doubled(log_c: float, count: int, probability: float, per_arrival: int) -> tuple[Array, float]:
    """The law of the sum on a grid, and how far its tails may be off."""
    known: dict[int, tuple[Array, float]] = {}

    def law(steps: int) -> tuple[Array, float]:
        if steps not in known:
            if steps == 1 or steps * -log_c <= 1.01 * _NOT_SHRUNK:
                counted = _counted(steps, probability)
                places = np.rint(counted.levels * per_arrival).astype(np.int64)
                inside = places < _CELLS
                known[steps] = _put(places[inside], counted.masses[inside]), 0.0
            else:
                recent, older = law(steps // 2), law(steps - steps // 2)
                known[steps] = _added(recent, older, math.exp(steps // 2 * log_c))
        return known[steps]

    return law(_even(count, -_NOT_SHRUNK / log_c))


def _even(count: int, few: float) -> int:
    """At least as many steps, which can be halved until few are left."""
    doublings = max(math.ceil(math.log2(max(count / max(few, _FEWEST), 1.0))), 0)
    parts = 1 << doublings
    return -(-count // parts) * parts


def _added(
    one: tuple[Array, float], other: tuple[Array, float], factor: float
) -> tuple[Array, float]:
    """The law of one variable plus a multiple of another; what leaves the grid is left out."""
    shrunk = np.ceil(np.arange(_CELLS) * up(factor, ulps(256))).astype(np.int64)
    a, b = one[0], _put(shrunk, other[0])[:_CELLS]
    none, none_of_other = a[0], b[0]
    # Without the chance of nothing, most of all where that is nearly 1, less is rounded.
    some, some_of_other = np.append(0.0, a[1:]), np.append(0.0, b[1:])
    size = 2 * _CELLS
    product = np.fft.rfft(some, size) * np.fft.rfft(some_of_other, size)
    both = np.maximum(np.fft.irfft(product, size)[:_CELLS], 0.0)
    law = both + none * some_of_other + none_of_other * some
    law[0] = none * none_of_other
    norms = length_of(some) * length_of(some_of_other)
    return law, one[1] + other[1] + ulps(4.0 * math.log2(size) * math.sqrt(size)) * norms


def _put(places: IntArray, masses: Array) -> Array:
    return np.asarray(np.bincount(places, masses, _CELLS), dtype=np.float64)


def _chernoff(log_c: float, count: int, probability: float, levels: Array) -> Array:
    """Bounds of the probability to exceed these levels."""
    sizes, steps = _blocks(log_c, count)
    spread = math.sqrt(probability * (1.0 - probability) * float(steps @ sizes**2))
    tilts = np.append(np.minimum(_TILTS / spread, _LARGEST_TILT), np.linspace(1.0, 60.0, 60))
    with np.errstate(over="ignore"):
        moments = np.log1p(probability * np.expm1(tilts[:, None] * sizes)) @ steps
    moments = up(moments, TENS_OF_THOUSANDS_OF_ROUNDINGS)
    logs = moments[:, None] - tilts[:, None] * levels
    return np.asarray(np.exp(np.minimum(logs, 0.0)).min(axis=0))


def _blocks(log_c: float, count: int) -> tuple[Array, Array]:
    """Arrivals in blocks, each as large as its largest, and how many steps there are in each."""
    starts = np.unique(np.floor(np.linspace(0.0, count, _BLOCKS + 1)))
    return up(np.exp(log_c * starts[:-1]), ulps(512)), np.diff(starts)


def _by_tails(log_c: float, count: int, probability: float) -> Arrived:
    sizes, steps = _blocks(log_c, count)
    spread = math.sqrt(probability * (1.0 - probability) * float(steps @ sizes**2))
    tilts = np.minimum(_TILTS / spread, _LARGEST_TILT)
    grown = probability * np.expm1(tilts[:, None] * sizes)
    levels = np.maximum.accumulate((sizes * (grown + probability) / (1.0 + grown)) @ steps)
    above = np.minimum.accumulate(_chernoff(log_c, count, probability, levels))
    # What lies between two levels is put at the higher one, the last of which is never exceeded.
    levels = np.append(levels, max(float(sizes @ steps), float(levels[-1])))
    return Arrived(levels, -np.diff(above, prepend=1.0, append=0.0))


def _rounded_up(masses: Array, *, relative: float, absolute: float) -> Array:
    """Masses whose tails are larger by so much; some of it goes beyond the last."""
    above = np.minimum(suffix_sums(masses) * (1.0 + relative) + absolute, 1.0)
    above[0] = 1.0
    return np.maximum(-np.diff(above, append=absolute), 0.0)


def _coarser(levels: Array, masses: Array) -> Arrived:
    """Levels a small part of a standard deviation apart, farther in the tails, rounded up."""
    last = int(np.flatnonzero(masses > 0.0)[-1]) + 1
    levels, masses = levels[:last], masses[:last]
    mean = float(masses @ levels)
    spread = math.sqrt(max(float(masses @ (levels - mean) ** 2), 0.0))
    some = max(float(masses[levels > 0.0].sum()), _NEGLIGIBLE)
    # Of what hardly ever comes at all, parts of what comes if it does.
    unit, parts = (spread, _PARTS) if mean > spread else (0.5 * mean / some, 2 * _PARTS)
    if last == 1 or not unit > parts * (levels[1] - levels[0]):
        return Arrived(levels, masses)
    away = (levels - mean) / unit
    inner = np.clip(away, -_CENTRE, _CENTRE)
    group = np.ceil(parts * (inner + (away - inner) / _COARSER)).astype(np.int64)
    group = np.where(levels == 0.0, group[0] - 1, group)
    ends = np.flatnonzero(np.diff(group, append=group[-1] + 1))
    sums = np.add.reduceat(masses, np.append(0, ends[:-1] + 1))
    return Arrived(levels[ends], sums)
