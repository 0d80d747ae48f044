r"""Moments of the energy of participations, given their number in the last steps.

U(z, k) is the logarithm of :math:`E\,e^{sq}` for the distance z before the last A steps, given that
k of these have the example.  Each block of m steps before is added by

.. math:: U_{A+m}(z, j) \le \min_x \frac{s x^2}{c^2 + .. + c^{2m}} +
          \log E\,e^{U_A(c^m z - x + N,\, j - n)} ,

where n of j participations are in the block and N is their discounted sum, on its two ends.  The
probability of very many participations is lost.  `docs/tightness.md#participation-energy` has the
proof.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down
from lastiterate.bounds.subsampling.participation_energy.block_shifts import (
    Block,
    Value,
    at_the_end,
    with_best_shifts,
)

_MEMORIES = 1.0  # of steps whose participations are counted
_EXPECTED = 4.0  # participations among these, at most
_FOLDS = 40.0  # numbers of participations rarer than e^-40 are lost
_MOST_IN_BLOCK = 6  # participations; more count as later ones
_LIKELY = 0.5  # counting does not help if participations are more likely than this
_FAR_APART = 300.0  # in logarithms, beyond which exponentials may underflow


def counted_steps(log_c: float, steps: int, probability: float, cell: float) -> int:
    """The number of last steps whose participations are counted; 0 for none."""
    if probability > _LIKELY or cell > 1.0:
        return 0
    memory = -_MEMORIES / log_c if log_c < 0.0 else math.inf
    return math.floor(min(memory, _EXPECTED / probability, float(steps)))


class CountedMoments:
    """U(z, k) for some rates, from the end backwards."""

    def __init__(
        self, grid: Array, rates: Array, release: float, probability: float, last: int
    ) -> None:
        self._most = _most(last, probability)
        self._grid, self._rates, self._probability = grid, rates, probability
        self._rows = np.repeat(rates, self._most + 1)
        self._value: Value = at_the_end(self._rows, release)

    def add_block(self, block: Block) -> None:
        """Take the steps of the block before into account."""
        grid, most = self._grid, self._most
        unit = round(1.0 / grid[1])  # cells in a participation
        in_block = min(max(_MOST_IN_BLOCK, most - block.age), most, block.steps)
        reached = self._value(grid[1] * np.arange(grid.size + in_block * unit))
        reached = reached.reshape(self._rates.size, most + 1, -1)
        least = math.floor(unit * block.least_kept)
        share = (1.0 - block.kept) / (1.0 - least / unit) if least < unit else 0.0
        ends = (_End(unit, 1.0 - down(share, MILLIONS_OF_ROUNDINGS)), _End(least, share))
        possible = min(most, block.age + block.steps) + 1  # no more than there are steps
        chances = _log_chances(block, most, in_block)[:, :possible]
        after = _averaged(reached[:, :possible], chances, ends, grid.size)
        numbers = np.minimum(np.arange(most + 1), possible - 1)
        after = after[:, numbers].reshape(self._rows.size, -1)
        self._value = with_best_shifts(grid, after, block, self._rows)

    def lost(self, last: int) -> float:
        """The probability of more participations in the `last` steps."""
        return math.exp(_log_beyond(last, self._probability, self._most))

    def best_with(self, uncounted: Value, last: int) -> Value:
        """The better of the average over the number in the `last` steps and of `uncounted`."""
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
    """A number of participations that is exceeded with negligible probability."""
    low, high = math.floor(probability * last), last
    while low < high:
        middle = (low + high) // 2
        rare = _log_beyond(last, probability, middle) <= -_FOLDS
        low, high = (low, middle) if rare else (middle + 1, high)
    return high


class _End(NamedTuple):
    """A number of cells that a participation may be rounded to, and its probability."""

    cells: int
    probability: float


class _Outcome(NamedTuple):
    """n participations of a size in cells, and log probabilities by their total number."""

    n: int
    cells: int
    logs: Array


def _outcomes(log_chances: Array, ends: tuple[_End, _End]) -> Iterator[_Outcome]:
    for n, of_n in enumerate(log_chances):
        for end in ends if n else (_End(0, 1.0),):
            if end.probability > 0.0:
                yield _Outcome(n, end.cells, of_n[n:, None] + math.log(end.probability))


def _averaged(reached: Array, log_chances: Array, ends: tuple[_End, _End], size: int) -> Array:
    """log E e^value of [rate, j, distance] over the number n of j participations in a block.

    With participations of full size, the distance plus later participations is the same for all n:
    values are relative to the largest of that sum, so each is exponentiated only once.
    """
    unit, counts = ends[0].cells, reached.shape[1]
    largest = np.zeros((reached.shape[0], (counts - 1) * unit + reached.shape[2]))
    for k in range(counts):
        there = largest[:, k * unit : k * unit + reached.shape[2]]
        np.maximum(there, reached[:, k], out=there)
    np.maximum.accumulate(largest, axis=1, out=largest)
    relative = reached - _by_count(largest, reached.shape, unit)
    if not relative.min() > -_FAR_APART:
        return _averaged_far_apart(reached, _outcomes(log_chances, ends), size)
    np.exp(relative, out=relative)
    total = np.zeros((*reached.shape[:2], size))
    for n, cells, logs in _outcomes(log_chances, ends):
        term = relative[:, : counts - n, n * cells : n * cells + size] * np.exp(logs)
        if (short := n * (unit - cells)) > 0:
            lower = np.zeros(largest.shape)
            lower[:, short:] = np.exp(largest[:, :-short] - largest[:, short:])
            term *= _by_count(lower, total.shape, unit)[:, n:]
        total[:, n:] += term
    return np.asarray(np.log(total) + _by_count(largest, total.shape, unit))


def _averaged_far_apart(reached: Array, outcomes: Iterator[_Outcome], size: int) -> Array:
    """The result of `_averaged` if exponentials would underflow."""
    total = np.full((*reached.shape[:2], size), -np.inf)
    for n, cells, logs in outcomes:
        there = reached[:, : reached.shape[1] - n, n * cells : n * cells + size]
        total[:, n:] = np.logaddexp(total[:, n:], there + logs)
    return total


def _by_count(sums: Array, shape: tuple[int, ...], unit: int) -> Array:
    """[rate, k, z]: the entry of the sum of z cells and k participations."""
    return sliding_window_view(sums, shape[2], axis=1)[:, ::unit][:, : shape[1]]


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


def _log_chances(block: Block, most: int, in_block: int) -> Array:
    """[n, j]: log probability of n of j participations in the block; the last n stands for more."""
    numbers = np.arange(most + 1)
    j, n = numbers[None, :], numbers[:, None]
    left = np.maximum(j - n, 0)
    choices = gammaln(j + 1.0) - gammaln(n + 1.0) - gammaln(left + 1.0)
    inside = _log_falling(block.steps, most)[n]
    outside = _log_falling(block.age, most)[left]
    total = _log_falling(block.age + block.steps, most)[j]
    possible = (n <= j) & np.isfinite(total) & np.isfinite(inside) & np.isfinite(outside)
    with np.errstate(invalid="ignore"):
        logs = np.where(possible, choices + inside + outside - total, -np.inf)
    few = logs[: in_block + 1].copy()
    few[in_block] = np.logaddexp.reduce(logs[in_block:], axis=0)
    return few + MILLIONS_OF_ROUNDINGS


def _log_binomial(steps: int, probability: float, most: int) -> Array:
    number = np.arange(most + 1, dtype=np.float64)
    logs = _log_falling(steps, most) - gammaln(number + 1.0) + number * math.log(probability)
    return logs + (steps - number) * math.log1p(-probability) + MILLIONS_OF_ROUNDINGS


def _log_beyond(steps: int, probability: float, most: int) -> float:
    """The log probability of more participations, by Chernoff's bound."""
    number = most + 1
    if number > steps:
        return -math.inf
    part = number / steps
    other = (1.0 - part) * math.log((1.0 - part) / (1.0 - probability)) if part < 1.0 else 0.0
    log = -steps * (part * math.log(part / probability) + other)
    return min(-down(-log, MILLIONS_OF_ROUNDINGS), 0.0)
