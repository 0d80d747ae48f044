r"""Exponential moments of what random participations cost, with contraction.

In each of the steps before the end the example takes part with probability p, independently; a
participation of age j has shrunk to :math:`c^j`, the noise of that age to :math:`c^{2j}`, and noise
on release is worth h steps.  Let :math:`U_A(z)` be the logarithm of :math:`E\,e^{s q}`, where q is
the least energy that pays the distance z, left when the participations of age A and more have
come, and all later ones.

**Convex.** The least energy is jointly convex in z and in what arrives, so :math:`U_A` is convex
and increasing: between two points it lies below the chord.

**Backwards.** With m more steps, and any payment :math:`x \le c^m z` from the noise of
these,

.. math:: U_{A+m}(z) \le \min_x \frac{s x^2}{c^2 + .. + c^{2m}} +
          \log E\,e^{U_A(c^m z - x + N)} .

What arrives, :math:`\sum_{i<m} c^i V_i`, may be replaced by a variable that is larger in convex
order: each term by one that is 1 with probability :math:`p c^i`, and their sum by a binomial one of
the same mean (Hoeffding 1956), rounded to a grid with its mean kept.

Everything is a sum of positive terms, so there is no delta too small.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.geometric import power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up
from lastiterate.engine.energy.counts import counts

_GROWTH = 0.06  # of blocks, with their age
_BLOCK = 0.06  # memories, the longest of recent blocks
_RECENT = 3.0  # memories
_MEMORY = 45.0  # memories; what is older is e^-45 of the whole
_FINEST = 16  # cells in an arrival
_CELLS = 400
_FAR = 8.0  # in standard deviations of what is remembered, the largest distance that is left


class Moments(NamedTuple):
    """log E e^(s q), one for each rate s, but with probability `lost`.

    The root of the energy may be larger than that of q by `older`.
    """

    logs: Array
    lost: float
    older: float = 0.0


class _Block(NamedTuple):
    steps: int
    decay: float
    noise: float
    arriving: float  # on average, for each of its steps


def steered_moments(
    log_c: float,
    steps: int,
    probability: float,
    release: float,
    rates: Array,
    cap: float = math.inf,
) -> Moments:
    """By payments that know the past only.  Nothing left unpaid ever exceeds `cap`."""
    span = min(steps, math.ceil(_MEMORY / -log_c)) if log_c < 0.0 else steps
    grid = _grid(log_c, span, probability)
    cell = grid[1]
    value: Callable[[Array], Array] = _at_the_end(rates, release)
    least = np.full(rates.size, np.inf)
    lost = 0.0
    for block in _blocks(log_c, span, release, probability):
        places, logs, missed = _on_grid(block, cell)
        lost += missed
        reached = value(cell * np.arange(grid.size + places[-1]))
        after = _averaged(reached, places, logs, grid.size)
        value = _paid(grid, after, block, rates)
        if cap < math.inf:
            least = np.minimum(least, value(np.array([cap + 1.0]))[:, 0])
    least = np.minimum(least, value(np.zeros(1))[:, 0])
    older = 0.0
    if span < steps:
        kept = power(log_c, span) / math.sqrt(sum_of_powers(2.0 * log_c, span) + release)
        older = up(kept * sum_of_powers(log_c, steps - span), MILLIONS_OF_ROUNDINGS)
    return Moments(up(least, MILLIONS_OF_ROUNDINGS) + MILLIONS_OF_ROUNDINGS, lost, older)


def _at_the_end(rates: Array, release: float) -> Callable[[Array], Array]:
    def value(distances: Array) -> Array:
        return rates[:, None] * np.square(distances) / (1.0 + release)

    return value


def _grid(log_c: float, steps: int, probability: float) -> Array:
    """Distances that may be left unpaid: whole parts of an arrival, or whole numbers of them."""
    memory = -1.0 / log_c if log_c < 0.0 else math.inf
    arrived = probability * min(float(steps), memory)
    # Where the past is forgotten, the best plans leave nearly all of it until late.
    farthest = arrived * min(1.0, steps / memory) + _FAR * math.sqrt(arrived) + 4.0
    finest = farthest / _CELLS
    cell = 1.0 / min(math.floor(1.0 / finest), _FINEST) if finest < 1.0 else math.ceil(finest)
    return cell * np.arange(math.ceil(farthest / cell) + 1, dtype=np.float64)


def _blocks(log_c: float, steps: int, release: float, probability: float) -> Iterator[_Block]:
    """From the last one backwards: the older the longer."""
    age = 0
    while age < steps:
        wanted = _GROWTH * (age + 1.0 + release)
        if log_c < 0.0:
            forgotten = max(0.0, -age * log_c - _RECENT)
            wanted = min(wanted, _BLOCK / -log_c * math.exp(min(forgotten / 2.0, 30.0)))
        length = max(1, min(math.floor(wanted), steps - age))
        yield _Block(
            length,
            up(power(log_c, length), MILLIONS_OF_ROUNDINGS),
            down(power(log_c, 2) * sum_of_powers(2.0 * log_c, length), MILLIONS_OF_ROUNDINGS),
            min(probability * sum_of_powers(log_c, length) / length, 1.0),
        )
        age += length


def _on_grid(block: _Block, cell: float) -> tuple[IntArray, Array, float]:
    """What arrives in whole cells, the logarithms of the probabilities, and what is missed."""
    arriving = counts(block.steps, block.arriving)
    if cell <= 1.0:
        return np.rint(arriving.values / cell).astype(np.int64), arriving.logs, arriving.lost
    below = np.floor(arriving.values / cell)
    share = arriving.values / cell - below
    first = int(below[0])
    masses = np.exp(arriving.logs)
    places = (below - first).astype(np.int64)
    size = int(places[-1]) + 2
    sums = np.bincount(places, masses * (1.0 - share), size)
    sums += np.bincount(places + 1, masses * share, size)
    used = np.flatnonzero(sums > 0.0)
    return np.asarray(used + first), np.log(sums[used]), arriving.lost


def _averaged(reached: Array, places: IntArray, logs: Array, size: int) -> Array:
    """log E e^value once something has arrived, at each distance of the grid."""
    total = reached[:, places[0] : places[0] + size] + logs[0]
    highest = reached[:, places[-1] : places[-1] + size]  # the function increases
    scaled = np.exp(total - highest)
    for place, log in zip(places[1:], logs[1:], strict=True):
        scaled += np.exp(reached[:, place : place + size] + log - highest)
    return np.asarray(highest + np.log(scaled))


def _paid(grid: Array, after: Array, block: _Block, rates: Array) -> Callable[[Array], Array]:
    """The value before the block: chords between points of the grid, and the best payments.

    With slope k of the value, leaving w of y is best where 2 s (y - w) / noise = k.
    """
    slopes = np.diff(after, axis=1) / grid[1]
    slopes = np.concatenate([np.zeros((rates.size, 1)), slopes, slopes[:, -1:]], axis=1)
    extra = slopes * (block.noise / (2.0 * rates[:, None]))
    bends = np.empty((rates.size, 2 * grid.size))
    bends[:, 0::2] = grid + extra[:, :-1]
    bends[:, 1::2] = grid + extra[:, 1:]
    np.maximum.accumulate(bends, axis=1, out=bends)
    twice = np.repeat(grid, 2)

    def value(distances: Array) -> Array:
        there = block.decay * distances
        result = np.empty((rates.size, there.size))
        for i, rate in enumerate(rates):
            left = np.minimum(np.interp(there, bends[i], twice), there)
            paid = np.square(there - left) * (rate / block.noise)
            result[i] = paid + np.interp(left, grid, after[i])
        return result

    return value
