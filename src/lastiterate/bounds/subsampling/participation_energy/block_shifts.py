"""Shifts in blocks of steps, from the end backwards, for the moments of the energy.

A value is a function of the distance before a block, one for each row (rate), increasing and
convex. It is computed on a grid, with chords between its points.  The recursion is that of
`docs/tightness.md#participation-energy`.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.powers import power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, IntArray, down, up

_FOLDS = 50.0  # counts rarer than e^-50 are left out
_GROWTH = 0.06  # of blocks, with their age
_BLOCK = 0.06  # memories -1/log c, the longest of recent blocks
_RECENT = 3.0  # memories
_FINEST = 16  # cells in a participation
_CELLS = 400
_FAR = 8.0  # the largest distance, in standard deviations of participations in memory

Value = Callable[[Array], Array]


class Block(NamedTuple):
    """A block of `steps` with `age` steps after it.

    `decay` is the contraction over the block and `noise` its variance.  A participation in it has
    at its end the size `kept` on average, and at least `least_kept`.
    """

    age: int
    steps: int
    decay: float
    noise: float
    kept: float
    least_kept: float


def at_the_end(rates: Array, release: float) -> Value:
    """The value after all steps: the last step and the release shift the whole distance."""

    def value(distances: Array) -> Array:
        return rates[:, None] * np.square(distances) / (1.0 + release)

    return value


def grid_of_distances(log_c: float, steps: int, probability: float) -> Array:
    """A grid of distances: whole parts of a participation, or whole numbers of them."""
    memory = -1.0 / log_c if log_c < 0.0 else math.inf
    mean = probability * min(float(steps), memory)
    # In long runs the best shifts leave nearly all participations in memory until late.
    farthest = mean * min(1.0, steps / memory) + _FAR * math.sqrt(mean) + 4.0
    finest = farthest / _CELLS
    cell = 1.0 / min(math.floor(1.0 / finest), _FINEST) if finest < 1.0 else math.ceil(finest)
    return cell * np.arange(math.ceil(farthest / cell) + 1, dtype=np.float64)


def blocks(log_c: float, steps: int, release: float) -> Iterator[Block]:
    """The blocks from the last one backwards, longer with age."""
    age = 0
    while age < steps:
        wanted = _GROWTH * (age + 1.0 + release)
        if log_c < 0.0:
            beyond = max(0.0, -age * log_c - _RECENT)
            wanted = min(wanted, _BLOCK / -log_c * math.exp(min(beyond / 2.0, 30.0)))
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


def before_block(
    value: Value, block: Block, probability: float, grid: Array, rates: Array
) -> tuple[Value, float]:
    """The value before the block, by shifts that know the past only, and the lost probability."""
    cells, logs, lost = _on_grid(block, probability, grid[1])
    reached = value(grid[1] * np.arange(grid.size + cells[-1]))
    after = _averaged(reached, cells, logs, grid.size)
    return with_best_shifts(grid, after, block, rates), lost


def _on_grid(block: Block, probability: float, cell: float) -> tuple[IntArray, Array, float]:
    """A block's participations in cells, their log probabilities, and the lost probability."""
    window = binomial_window(block.steps, min(probability * block.kept, 1.0))
    if cell <= 1.0:
        return np.rint(window.values / cell).astype(np.int64), window.logs, window.lost
    below = np.floor(window.values / cell)
    share = window.values / cell - below
    first = int(below[0])
    masses = np.exp(window.logs)
    cells = (below - first).astype(np.int64)
    size = int(cells[-1]) + 2
    sums = np.bincount(cells, masses * (1.0 - share), size)
    sums += np.bincount(cells + 1, masses * share, size)
    used = np.flatnonzero(sums > 0.0)
    return np.asarray(used + first), np.log(sums[used]), window.lost


def _averaged(reached: Array, cells: IntArray, logs: Array, size: int) -> Array:
    """log E e^value over the participations of a block, at each distance of the grid."""
    total = reached[:, cells[0] : cells[0] + size] + logs[0]
    highest = reached[:, cells[-1] : cells[-1] + size]  # the function increases
    scaled = np.exp(total - highest)
    for cell, log in zip(cells[1:], logs[1:], strict=True):
        scaled += np.exp(reached[:, cell : cell + size] + log - highest)
    return np.asarray(highest + np.log(scaled))


def with_best_shifts(grid: Array, after: Array, block: Block, rates: Array) -> Value:
    """The value before the block, with the best shifts in it, by chords between points.

    With slope k of the value after, leaving w of y is best where 2 s (y - w) / noise = k.
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
        index = np.minimum((left / grid[1]).astype(np.int64), grid.size - 2)
        below = np.take_along_axis(after, index, axis=1)
        above = np.take_along_axis(after, index + 1, axis=1)
        chord = below + (above - below) * (left / grid[1] - index)
        return np.asarray(np.square(there - left) * costs + chord)

    return value


class BinomialWindow(NamedTuple):
    """Consecutive counts, and the logarithms of their probabilities.

    Smaller counts are included in the first; larger ones have the probability `lost`.
    """

    values: Array
    logs: Array
    lost: float


def binomial_window(steps: int, probability: float) -> BinomialWindow:
    """The likely numbers of participations in some steps, with log probabilities.

    Each probability is the one before times a ratio, so large factorials do not cost digits.
    """
    mean = steps * probability
    spread = math.sqrt(2.0 * _FOLDS * mean) + _FOLDS
    first, last = max(0, math.floor(mean - spread)), min(steps, math.ceil(mean + spread))
    if probability >= 1.0:
        return BinomialWindow(np.array([float(steps)]), np.zeros(1), 0.0)
    values = np.arange(first, last + 1, dtype=np.float64)
    odds = probability / (1.0 - probability)
    ratios = np.log((steps - values[:-1]) / (values[:-1] + 1.0) * odds)
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    logs -= logs.max()
    logs -= math.log(math.fsum(np.exp(logs)))
    kept = (logs > -_FOLDS) | (values < mean)
    values, logs = values[kept], logs[kept]
    few = logs > -_FOLDS
    start = min(int(np.argmax(few)), values.size - 1)
    below = math.fsum(np.exp(logs[:start]))
    values, logs = values[start:], logs[start:].copy()
    logs[0] = math.log(math.exp(logs[0]) + below)
    top = float(values[-1])
    lost = 0.0
    if top < steps:
        # From here on each is less than half of the one before, or the window ends far out.
        ratio = (steps - top) / (top + 1.0) * odds
        lost = up(math.exp(-_FOLDS) / max(1.0 - ratio, 1e-3), MILLIONS_OF_ROUNDINGS)
    return BinomialWindow(values, logs + MILLIONS_OF_ROUNDINGS, lost)
