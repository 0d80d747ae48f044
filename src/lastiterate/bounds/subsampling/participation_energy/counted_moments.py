r"""Exponential moments of what participations cost, if those of the last steps are counted first.

A plan may depend on all participations.  What a payment must know of those yet to come is mostly
how many they are; and given that k of the last A steps have the example, which of them have it is
uniform, so that k is all that is known.

**Backwards.** Let :math:`U_A(z, k)` be as in `steered`, given that k of the last A steps have the
example.  If it comes j times in these and the m steps before, it comes n times in the latter with
the chance :math:`\binom{m}{n}\binom{A}{j-n} / \binom{A+m}{j}`.  For any payment x, which may depend
on j,

.. math:: U_{A+m}(z, j) \le \min_x \frac{s x^2}{c^2 + .. + c^{2m}} +
          \log E\,e^{U_A(c^m z - x + N,\, j - n)} ,

N being what these n bring.  It lies between :math:`n c^{m-1}` and n, and in convex order is less
than the variable of the same mean that is always at one of the two ends.  An arrival in these steps
never costs more than one in later ones: so n is cut at a few, and the others are taken for later.

**Many.** More participations than next to impossible are counted as lost.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.bounds.subsampling.participation_energy.block_shifts import (
    Block,
    Value,
    at_the_end,
    paid,
)

_MEMORIES = 1.0  # counted beforehand
_EXPECTED = 4.0  # participations among these, at most
_FOLDS = 40.0  # more participations than have a chance of e^-40 are not looked at
_AT_ONCE = 6  # participations of one block; more are taken for later ones
_LIKELY = 0.5  # participations more likely than this are all but known
_FAR_APART = 300.0  # in logarithms


def steps_counted(log_c: float, steps: int, probability: float, cell: float) -> int:
    """How many of the last steps' participations to count; 0 for none."""
    if probability > _LIKELY or cell > 1.0:
        return 0
    memory = -_MEMORIES / log_c if log_c < 0.0 else math.inf
    return math.floor(min(memory, _EXPECTED / probability, float(steps)))


class Counted:
    """U(z, k) for some rates, from the end backwards."""

    def __init__(
        self, grid: Array, rates: Array, release: float, probability: float, last: int
    ) -> None:
        self._most = _most(last, probability)
        self._grid, self._rates, self._probability = grid, rates, probability
        self._rows = np.repeat(rates, self._most + 1)
        self._value: Value = at_the_end(self._rows, release)

    def go_back(self, block: Block) -> None:
        """Take the steps before into account."""
        grid, most = self._grid, self._most
        arrival = round(1.0 / grid[1])  # in cells
        at_once = min(max(_AT_ONCE, most - block.age), most, block.steps)
        reached = self._value(grid[1] * np.arange(grid.size + at_once * arrival))
        reached = reached.reshape(self._rates.size, most + 1, -1)
        least = math.floor(arrival * block.least_kept)
        share = (1.0 - block.kept) / (1.0 - least / arrival) if least < arrival else 0.0
        ends = (_End(arrival, 1.0 - down(share, MILLIONS_OF_ROUNDINGS)), _End(least, share))
        possible = min(most, block.age + block.steps) + 1  # no more than there are steps
        chances = _log_chances(block, most, at_once)[:, :possible]
        after = _arrived(reached[:, :possible], chances, ends, grid.size)
        coming = np.minimum(np.arange(most + 1), possible - 1)
        self._value = paid(grid, after[:, coming].reshape(self._rows.size, -1), block, self._rows)

    def lost(self, last: int) -> float:
        """The chance that the example comes more often in the `last` steps."""
        return math.exp(_log_beyond(last, self._probability, self._most))

    def or_better(self, uncounted: Value, last: int) -> Value:
        """Not knowing the number in the `last` steps: the better of both ways, for each rate."""
        logs = _log_binomial(last, self._probability, self._most)
        value, shape = self._value, (self._rates.size, self._most + 1, -1)

        def averaged(distances: Array) -> Array:
            given = value(distances).reshape(shape)
            return _log_sum([given[:, k] + logs[k] for k in range(self._most + 1)])

        better = averaged(np.zeros(1)) < uncounted(np.zeros(1))

        def best(distances: Array) -> Array:
            return np.where(better, averaged(distances), uncounted(distances))

        return averaged if np.all(better) else best


def _most(last: int, probability: float) -> int:
    """A number of participations that is next to never exceeded."""
    low, high = math.floor(probability * last), last
    while low < high:
        middle = (low + high) // 2
        rare = _log_beyond(last, probability, middle) <= -_FOLDS
        low, high = (low, middle) if rare else (middle + 1, high)
    return high


class _End(NamedTuple):
    """A number of cells that a participation may be rounded to, and its probability."""

    cells: int
    chance: float


class _Come(NamedTuple):
    """n participations have come, each worth so many cells; how likely, by how many there were."""

    n: int
    cells: int
    logs: Array


def _ways(log_chances: Array, ends: tuple[_End, _End]) -> Iterator[_Come]:
    for n, of_n in enumerate(log_chances):
        for end in ends if n else (_End(0, 1.0),):
            if end.chance > 0.0:
                yield _Come(n, end.cells, of_n[n:, None] + math.log(end.chance))


def _arrived(reached: Array, log_chances: Array, ends: tuple[_End, _End], size: int) -> Array:
    """log E e^value of [rate, j, distance], once n of j participations have come.

    If arrivals count fully, what is left and what is yet to come add up to the same for all n:
    values are taken relative to the largest of that sum, so that each is exponentiated but once.
    """
    arrival, counts = ends[0].cells, reached.shape[1]
    largest = np.zeros((reached.shape[0], (counts - 1) * arrival + reached.shape[2]))
    for k in range(counts):
        there = largest[:, k * arrival : k * arrival + reached.shape[2]]
        np.maximum(there, reached[:, k], out=there)
    np.maximum.accumulate(largest, axis=1, out=largest)
    relative = reached - _by_count(largest, reached.shape, arrival)
    if not relative.min() > -_FAR_APART:
        return _arrived_far_apart(reached, _ways(log_chances, ends), size)
    np.exp(relative, out=relative)
    total = np.zeros((*reached.shape[:2], size))
    for n, cells, logs in _ways(log_chances, ends):
        term = relative[:, : counts - n, n * cells : n * cells + size] * np.exp(logs)
        if (short := n * (arrival - cells)) > 0:
            lower = np.zeros(largest.shape)
            lower[:, short:] = np.exp(largest[:, :-short] - largest[:, short:])
            term *= _by_count(lower, total.shape, arrival)[:, n:]
        total[:, n:] += term
    return np.asarray(np.log(total) + _by_count(largest, total.shape, arrival))


def _arrived_far_apart(reached: Array, ways: Iterator[_Come], size: int) -> Array:
    """The result of `_arrived`, computed where exponentials would underflow."""
    total = np.full((*reached.shape[:2], size), -np.inf)
    for n, cells, logs in ways:
        there = reached[:, : reached.shape[1] - n, n * cells : n * cells + size]
        total[:, n:] = np.logaddexp(total[:, n:], there + logs)
    return total


def _by_count(sums: Array, shape: tuple[int, ...], arrival: int) -> Array:
    """[rate, k, z]: of the sum of z cells and k arrivals."""
    return sliding_window_view(sums, shape[2], axis=1)[:, ::arrival][:, : shape[1]]


def _log_sum(terms: list[Array]) -> Array:
    top = np.max(terms, axis=0)
    total = np.zeros(top.shape)
    for term in terms:
        total += np.exp(term - top)
    return np.asarray(top + np.log(total))


def _log_falling(count: int, most: int) -> Array:
    """log of count (count - 1) .. (count - k + 1) for k up to `most`."""
    with np.errstate(divide="ignore"):
        factors = np.log(np.maximum(count - np.arange(most, dtype=np.float64), 0.0))
    return np.append(0.0, np.cumsum(factors))


def _log_chances(block: Block, most: int, at_once: int) -> Array:
    """[n, j]: the chance that n of j participations are in the block; at_once stands for more."""
    numbers = np.arange(most + 1)
    j, n = numbers[None, :], numbers[:, None]
    left = np.maximum(j - n, 0)
    choices = gammaln(j + 1.0) - gammaln(n + 1.0) - gammaln(left + 1.0)
    ours = _log_falling(block.steps, most)[n]
    theirs = _log_falling(block.age, most)[left]
    total = _log_falling(block.age + block.steps, most)[j]
    possible = (n <= j) & np.isfinite(total) & np.isfinite(ours) & np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        logs = np.where(possible, choices + ours + theirs - total, -np.inf)
    few = logs[: at_once + 1].copy()
    few[at_once] = np.logaddexp.reduce(logs[at_once:], axis=0)
    return few + MILLIONS_OF_ROUNDINGS


def _log_binomial(steps: int, probability: float, most: int) -> Array:
    number = np.arange(most + 1, dtype=np.float64)
    logs = _log_falling(steps, most) - gammaln(number + 1.0) + number * math.log(probability)
    return logs + (steps - number) * math.log1p(-probability) + MILLIONS_OF_ROUNDINGS


def _log_beyond(steps: int, probability: float, most: int) -> float:
    """The chance of more participations, by Chernoff's bound."""
    number = most + 1
    if number > steps:
        return -math.inf
    part = number / steps
    other = (1.0 - part) * math.log((1.0 - part) / (1.0 - probability)) if part < 1.0 else 0.0
    log = -steps * (part * math.log(part / probability) + other)
    return min(-down(-log, MILLIONS_OF_ROUNDINGS), 0.0)
