r"""Payments in blocks of steps, from the end backwards: what `steered` and `counted` share.

Values are functions of the distance left before a block, one for each row, increasing and convex:
known on a grid, with chords between its points.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.geometric import power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up
from lastiterate.bounds.subsampling.participation_energy.binomial_window import counts

_GROWTH = 0.06  # of blocks, with their age
_BLOCK = 0.06  # memories, the longest of recent blocks
_RECENT = 3.0  # memories
_FINEST = 16  # cells in an arrival
_CELLS = 400
_FAR = 8.0  # in standard deviations of what is remembered, the largest distance that is left

Value = Callable[[Array], Array]


class Block(NamedTuple):
    """So many steps, with `age` steps after them."""

    age: int
    steps: int
    decay: float
    noise: float
    kept: float  # of what arrives in one of its steps, on average
    least_kept: float


def at_the_end(rates: Array, release: float) -> Value:
    def value(distances: Array) -> Array:
        return rates[:, None] * np.square(distances) / (1.0 + release)

    return value


def grid_of_distances(log_c: float, steps: int, probability: float) -> Array:
    """Distances that may be left unpaid: whole parts of an arrival, or whole numbers of them."""
    memory = -1.0 / log_c if log_c < 0.0 else math.inf
    arrived = probability * min(float(steps), memory)
    # Where the past is forgotten, the best plans leave nearly all of it until late.
    farthest = arrived * min(1.0, steps / memory) + _FAR * math.sqrt(arrived) + 4.0
    finest = farthest / _CELLS
    cell = 1.0 / min(math.floor(1.0 / finest), _FINEST) if finest < 1.0 else math.ceil(finest)
    return cell * np.arange(math.ceil(farthest / cell) + 1, dtype=np.float64)


def blocks(log_c: float, steps: int, release: float) -> Iterator[Block]:
    """From the last one backwards: the older the longer."""
    age = 0
    while age < steps:
        wanted = _GROWTH * (age + 1.0 + release)
        if log_c < 0.0:
            forgotten = max(0.0, -age * log_c - _RECENT)
            wanted = min(wanted, _BLOCK / -log_c * math.exp(min(forgotten / 2.0, 30.0)))
        length = max(1, min(math.floor(wanted), steps - age))
        yield Block(
            age,
            length,
            up(power(log_c, length), MILLIONS_OF_ROUNDINGS),
            down(power(log_c, 2) * sum_of_powers(2.0 * log_c, length), MILLIONS_OF_ROUNDINGS),
            min(up(sum_of_powers(log_c, length) / length, MILLIONS_OF_ROUNDINGS), 1.0),
            down(power(log_c, length - 1), MILLIONS_OF_ROUNDINGS),
        )
        age += length


def went_back(
    value: Value, block: Block, probability: float, grid: Array, rates: Array
) -> tuple[Value, float]:
    """The value before the block, by payments that know the past only; and what is missed."""
    places, logs, missed = _on_grid(block, probability, grid[1])
    reached = value(grid[1] * np.arange(grid.size + places[-1]))
    after = _averaged(reached, places, logs, grid.size)
    return paid(grid, after, block, rates), missed


def _on_grid(block: Block, probability: float, cell: float) -> tuple[IntArray, Array, float]:
    """A block's participations in whole cells, their log probabilities, and what is missed."""
    arriving = counts(block.steps, min(probability * block.kept, 1.0))
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


def paid(grid: Array, after: Array, block: Block, rates: Array) -> Value:
    """The value before the block: chords between points of the grid, and the best payments.

    With slope k of the value, leaving w of y is best where 2 s (y - w) / noise = k.
    """
    slopes = np.diff(after, axis=1, append=2.0 * after[:, -1:] - after[:, -2:-1]) / grid[1]
    extra = slopes * (block.noise / (2.0 * rates[:, None]))
    bends = np.zeros((rates.size, 2 * grid.size + 1))
    bends[:, 2:-1:2] = grid[1:] + extra[:, :-1]
    bends[:, 1:-1:2] = grid + extra
    np.maximum.accumulate(bends[:, :-1], axis=1, out=bends[:, :-1])
    farthest = float(bends.max())
    lefts = np.tile(np.append(np.repeat(grid, 2), grid[-1]), rates.size)
    costs = (rates / block.noise)[:, None]

    def value(distances: Array) -> Array:
        there = block.decay * distances
        # All rows at once, each beyond the end of the one before.
        bends[:, -1] = max(farthest, float(there.max()))
        apart = (bends[0, -1] + 1.0) * np.arange(rates.size)[:, None]
        left = np.interp((there + apart).ravel(), (bends + apart).ravel(), lefts)
        left = np.minimum(left.reshape(rates.size, -1), there)
        place = np.minimum((left / grid[1]).astype(np.int64), grid.size - 2)
        below = np.take_along_axis(after, place, axis=1)
        above = np.take_along_axis(after, place + 1, axis=1)
        chord = below + (above - below) * (left / grid[1] - place)
        return np.asarray(np.square(there - left) * costs + chord)

    return value
