r"""The sum left by a drawn example where every step keeps a fixed share c of the past.

A participation `age` steps before the end counts :math:`c^{age}`.  The steps of a run, however
many, are few groups of nearly equal weight: `low` and `high` are the least and the largest weight
of a group, so that a sum over drawn steps is known from both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics import powers as geometric
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, IntArray, down, up

ComplexArray = NDArray[np.complex128]

_GROUPS = 3_000
_BLOCK = 1 << 20
_FLAT_EPOCH = 1.0 / 1_000.0  # an epoch that contracts less is one group
_NEGLIGIBLE = 8.0  # minus the logarithm of the root of a weight as good as 0
_EXPONENTS = 2.0 ** np.arange(-6.0, 9.0)


@dataclass(frozen=True)
class Draws:
    """A sum of independent draws: each takes at most one of its groups, or nothing.

    Draw d has the groups from `first[d]` on, takes group g with probability `chances[g]`, and is
    made `times[d]` times.
    """

    low: Array
    high: Array
    chances: Array
    first: IntArray
    times: Array

    def characteristic(self, frequencies: Array, *, high: bool) -> ComplexArray:
        """E e^{iuS}, S being made of the low or of the high weights."""
        weights = self.high if high else self.low
        if not weights.size:
            return np.ones(frequencies.shape, dtype=np.complex128)
        rows = max(1, _BLOCK // weights.size)
        blocks = (frequencies[k : k + rows] for k in range(0, frequencies.size, rows))
        return np.concatenate([self._characteristic(block, weights) for block in blocks])

    def _characteristic(self, frequencies: Array, weights: Array) -> ComplexArray:
        half = np.multiply.outer(frequencies, 0.5 * weights)
        sines = np.sin(half)
        # e^{iy} - 1, by parts: complex functions take several times as long.
        real = np.add.reduceat(self.chances * (-2.0 * sines * sines), self.first, axis=1)
        turned = np.add.reduceat(self.chances * (2.0 * sines * np.cos(half)), self.first, axis=1)
        with np.errstate(divide="ignore"):
            sizes = 0.5 * np.log1p(np.maximum(real * (2.0 + real) + turned * turned, -1.0))
        sizes, angles = sizes @ self.times, np.arctan2(turned, 1.0 + real) @ self.times
        return np.asarray(np.exp(sizes) * np.exp(1j * angles), dtype=np.complex128)

    def most(self, lost: float) -> float:
        """A value that the sum exceeds with at most this probability (Chernoff), rounded up."""
        if not self.high.size:
            return 0.0
        largest = float(self.times @ np.maximum.reduceat(self.high, self.first))
        scale = max(float(self.high.max()), largest / 500.0)
        if not scale > 0.0:
            return 0.0
        exponents = _EXPONENTS / scale
        moved = self.chances * np.expm1(np.multiply.outer(exponents, self.high))
        cumulants = np.log1p(np.add.reduceat(moved, self.first, axis=1)) @ self.times
        tails = (cumulants - math.log(lost)) / exponents
        return up(min(largest, float(tails.min())), MILLIONS_OF_ROUNDINGS)


def _joined(parts: Sequence[Draws]) -> Draws:
    kept = [part for part in parts if part.low.size]
    if not kept:
        nothing = np.zeros(0)
        return Draws(nothing, nothing, nothing, np.zeros(0, dtype=np.int64), nothing)
    starts = np.cumsum([0, *(part.low.size for part in kept[:-1])])
    return Draws(
        np.concatenate([part.low for part in kept]),
        np.concatenate([part.high for part in kept]),
        np.concatenate([part.chances for part in kept]),
        np.concatenate([part.first + start for part, start in zip(kept, starts, strict=True)]),
        np.concatenate([part.times for part in kept]),
    )


@dataclass(frozen=True)
class HiddenSteps:
    """The sum over the steps that see the example, by when chance decides on these.

    `last` is the chance that the last step does.  Given that it does, or does not, the *others*
    add `if_last` or `if_not`.
    """

    whole: Draws
    last: float
    if_last: Draws
    if_not: Draws


def drawn_each_step(gap: float, steps: int, chance: float) -> HiddenSteps:
    """In every step with this chance."""

    def after(age: int) -> Draws:
        edges = _edges(gap, [age, steps])
        low, high, sizes = _weights(gap, edges)
        return Draws(low, high, np.full(low.size, chance), np.arange(low.size), sizes)

    return HiddenSteps(after(0), chance, after(1), after(1))


def drawn_each_epoch(gap: float, steps: int, length: int, chance: float) -> HiddenSteps:
    """In one step of every epoch, each with this chance, or in none."""
    cut = steps % length or length  # steps of the last epoch
    earlier = _whole_epochs(gap, cut, steps, length, chance)
    last = _one_of(gap, [0, min(cut, steps)], chance)
    others = _one_of(gap, [1, min(cut, steps)], chance / (1.0 - chance) if chance < 1.0 else 0.0)
    return HiddenSteps(_joined([last, earlier]), chance, earlier, _joined([others, earlier]))


def drawn_once(gap: float, steps: int, length: int, chance: float) -> HiddenSteps:
    """Every `length` steps, from a step on that is drawn once, each with this chance."""
    ends = [0, steps % length, length] if steps > length else [0, steps]
    log_epoch = length * geometric.log_of(gap)
    again = math.exp(log_epoch) * geometric.sum_of_powers(log_epoch, -(-steps // length) - 1)
    returning = Draws(
        np.full(1, down(again, MILLIONS_OF_ROUNDINGS)),
        np.full(1, up(again, MILLIONS_OF_ROUNDINGS)),
        np.ones(1),
        np.zeros(1, dtype=np.int64),
        np.ones(1),
    )
    others = chance / (1.0 - chance) if chance < 1.0 else 0.0
    whole = _one_of(gap, ends, chance, every=length, steps=steps)
    if_not = _one_of(gap, [1, *(end for end in ends if end > 1)], others, every=length, steps=steps)
    return HiddenSteps(whole, chance, returning, if_not)


def _whole_epochs(gap: float, start: int, steps: int, length: int, chance: float) -> Draws:
    """The draws of all epochs but the last, which is from age 0 up to `start`."""
    count = (steps - start) // length
    if not count:
        return _joined([])
    if gap * length > _FLAT_EPOCH:
        # Once an epoch is negligible, all before it are treated as one more.
        reach = min(count, 1 + math.ceil(2.0 * _NEGLIGIBLE / (gap * length)))
        bounds = start + length * np.arange(reach + 1)
        edges = _edges(gap, bounds.tolist())
        low, high, sizes = _weights(gap, edges)
        first = np.searchsorted(edges, bounds[:-1])
        recent = Draws(low, high, sizes * chance, first, np.ones(reach))
        rest = _flat(gap, int(bounds[-1]), length, np.array([0, count - reach]), chance)
        return _joined([recent, rest])
    ages = _edges(gap, [start, start + count * length])
    return _flat(gap, start, length, np.unique((ages - start) // length), chance)


def _flat(gap: float, start: int, length: int, epochs: IntArray, chance: float) -> Draws:
    """Groups of whole epochs, each with nearly one weight."""
    sizes = np.diff(epochs).astype(np.float64)
    if not sizes.sum() > 0.0:
        return _joined([])
    ages = start + length * epochs
    high, low = _power(gap, ages[:-1]), _power(gap, ages[1:] - 1)
    return Draws(
        down(low, MILLIONS_OF_ROUNDINGS),
        up(high, MILLIONS_OF_ROUNDINGS),
        np.full(sizes.size, min(chance * length, 1.0)),
        np.arange(sizes.size),
        sizes,
    )


def _one_of(
    gap: float, ends: Sequence[int], chance: float, *, every: int = 0, steps: int = 0
) -> Draws:
    """One draw among the ages between the first and the last of `ends`.

    With `every`, whoever is seen at an age is seen again so many steps earlier, up to `steps`.
    """
    bounds = sorted(ends)
    if not bounds[-1] > bounds[0]:
        return _joined([])
    edges = _edges(gap, bounds)
    low, high, sizes = _weights(gap, edges)
    if every:
        times = -(-(steps - edges[:-1]) // every)
        again = geometric.sums_of_powers(every * geometric.log_of(gap), times)
        low, high = (
            down(low * again, MILLIONS_OF_ROUNDINGS),
            up(high * again, MILLIONS_OF_ROUNDINGS),
        )
    return Draws(low, high, sizes * chance, np.zeros(1, dtype=np.int64), np.ones(1))


def _edges(gap: float, bounds: Sequence[int]) -> IntArray:
    """Ages at which groups of nearly equal weight begin, `bounds` among them, and the end.

    The square roots of the weights are spaced evenly: what is small may be coarse.
    """
    first, last = int(bounds[0]), int(bounds[-1])
    ages = np.array(bounds, dtype=np.int64)
    if gap > 0.0:
        log_c = geometric.log_of(min(gap, 0.999_999))
        least = math.exp(max(last * log_c / 2.0, -_NEGLIGIBLE))
        logs = np.log(np.linspace(1.0, least, _GROUPS))
        inner = np.minimum(2.0 * logs / log_c, float(last)).astype(np.int64) + 1
        ages = np.concatenate([ages, inner])
    return np.unique(ages[(ages >= first) & (ages <= last)])


def _weights(gap: float, edges: IntArray) -> tuple[Array, Array, Array]:
    """The least and largest weight of the ages between edges, and how many ages these are."""
    low, high = _power(gap, edges[1:] - 1), _power(gap, edges[:-1])
    sizes = np.diff(edges).astype(np.float64)
    return down(low, MILLIONS_OF_ROUNDINGS), up(high, MILLIONS_OF_ROUNDINGS), sizes


def _power(gap: float, ages: IntArray) -> Array:
    return np.exp(geometric.logs_of_powers(geometric.log_of(gap), ages))
