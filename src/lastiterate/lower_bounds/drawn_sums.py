r"""The law of a sum of drawn terms, rounded towards less being told.

**Few or many terms.** `law_of_sum` puts the terms on a grid and so takes any number of them; what
it rounds away it rounds down.  `smoothed_lower_profile` is exact to rounding: the law of
S + N(0, 1) is the Fourier series of its characteristic function over a period that holds all of it,
but for a chance of `_LOST_CHANCE`, and as the Gaussian's decays like :math:`e^{-u^2/2}`, some
hundred terms give it.

**Steps that keep a fixed share c of the past.** A participation `age` steps before the end counts
:math:`c^{age}`.  The steps of a run, however many, are few groups of nearly equal weight: `low` and
`high` are the least and the largest weight of a group, so that a sum over drawn steps is known from
both sides (`Draws`), and its law under Gaussian noise, again by Fourier series (`below`).

**Two statistics of one result**: a sum over all steps, and what the very last step did.  Given
which steps saw the example they are independent: :math:`x = g S + N(0, 1)`, and y, which tells only
whether the last step saw it.  Tests accept y above a threshold that falls as x grows: so it does no
harm to round S towards less being told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lastiterate._numerics.powers import (
    fast_length,
    log_of,
    logs_of_powers,
    sum_of_powers,
    sums_of_powers,
)
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    IntArray,
    down,
    ulps,
    up,
)
from lastiterate.profile.lower import LowerProfile

Moves = tuple[float, float]
"""Factors of a sum in our world and in theirs."""

Characteristic = Callable[[Array], NDArray[np.complex128]]
ComplexArray = NDArray[np.complex128]
_CELLS_TO_A_TERM = 64
_MAX_CELLS = 1 << 17
_MAX_MEANS = 400
_PERIOD_MARGIN = 14.0  # standard deviations on either side of all means
_LARGEST_FREQUENCY = 9.5  # e^(-u^2/2) beyond is below 1e-19
_SERIES_ERROR = 1e-12
ERROR = THOUSANDS_OF_ROUNDINGS  # of a probability
_LOST_CHANCE = 1e-15
FARTHEST_MEAN = 500.0  # means that far away are told apart as well as any
_THRESHOLDS = 4_000
_SMOOTHED_THRESHOLDS = 1_200
_TERMS_BLOCK = 2_000_000
_MAX_GROUPS = 3_000
_DRAWS_BLOCK = 1 << 20
_FLAT_EPOCH = 1.0 / 1_000.0  # an epoch that contracts less is one group
_NEGLIGIBLE_LOG = 8.0  # minus the logarithm of the root of a weight as good as 0
_EXPONENTS = 2.0 ** np.arange(-6.0, 9.0)
_SUM_CELLS = 480  # of the sum x
_STEP_EDGES = 240  # of what the last step did, y
_LEAST_CELL_MASS = 1e-10  # cells of less are as good as rounding
_CELLS_MARGIN = 7.0
_LOG_RATIO_LEVELS = np.concatenate([[0.0], np.geomspace(1e-4, 600.0, 360)])


def law_of_sum(terms: Array, probability: float) -> tuple[list[float], list[float]]:
    """Chances and values of the sum of those terms that are drawn, each with this probability.

    All rounded down: the terms to a grid, a sum that does not fit by wrapping around, and in the
    end sums to the least of a group.
    """
    if probability == 1.0:
        return [down(1.0, MILLIONS_OF_ROUNDINGS)], [down(math.fsum(terms), MILLIONS_OF_ROUNDINGS)]
    largest, total = float(terms.max()), float(terms.sum())
    spread = math.sqrt(probability * float(terms @ terms))
    most = min(total, probability * total + 12.0 * spread + 40.0 * largest)
    if not largest > 0.0:
        return [down(1.0, MILLIONS_OF_ROUNDINGS)], [0.0]
    width = largest / max(1, min(_CELLS_TO_A_TERM, int(_MAX_CELLS * largest / most)))
    sizes, counts = np.unique((terms / width).astype(np.int64), return_counts=True)
    cells = fast_length(int(most / width) + 2)
    angles = (-2j * math.pi / cells) * np.arange(cells // 2 + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [
            n * np.log1p(probability * np.expm1(angles * k))
            for k, n in zip(sizes, counts, strict=True)
        ]
    # Of the angles and logarithms, and hence of the transform.
    rounding = 4 * ulps(1) * (terms.size + 64.0) * math.pi * _CELLS_TO_A_TERM
    law = np.fft.irfft(np.nan_to_num(np.exp(sum(logs))), cells) - rounding
    likely = np.flatnonzero(law > 0.0)
    groups = np.array_split(likely, min(_MAX_MEANS, likely.size))
    return [float(law[g].sum()) for g in groups], [
        down(float(g[0]) * width, MILLIONS_OF_ROUNDINGS) for g in groups
    ]


@dataclass(frozen=True, repr=False)
class ThresholdLowerProfile(LowerProfile):
    """Tests of given false- and true-positive rates."""

    false: Array = field(compare=False)
    true: Array = field(compare=False)

    def tests(self) -> tuple[Array, Array]:
        return self.false, self.true


def smoothed_lower_profile(
    most: float, characteristic: Characteristic, moves: Moves = (1.0, 0.0)
) -> ThresholdLowerProfile:
    """ours S + N(0, 1) against theirs S + N(0, 1), for a sum S of the law with this E e^{iuS}.

    S is at least 0, and at most `most` but for a chance of `_LOST_CHANCE`; `ours` is the larger.
    """
    farthest = max(map(abs, moves)) * most
    if farthest > FARTHEST_MEAN:  # as more noise would have it
        moves = (moves[0] * FARTHEST_MEAN / farthest, moves[1] * FARTHEST_MEAN / farthest)
    ours, theirs = moves
    low = min(theirs, 0.0) * most - _PERIOD_MARGIN + 4.0
    thresholds = np.linspace(low, max(ours * most, 0.0) + _PERIOD_MARGIN, _THRESHOLDS)
    below_ours = _smoothed_below(thresholds, most, characteristic, ours)
    below_theirs = _smoothed_below(thresholds, most, characteristic, theirs)
    above_theirs = ndtr(-thresholds) if theirs == 0.0 else 1.0 - below_theirs + _SERIES_ERROR
    false = np.concatenate([above_theirs, below_ours + _SERIES_ERROR])
    true = np.concatenate([1.0 - below_ours - _SERIES_ERROR, below_theirs - _SERIES_ERROR])
    return ThresholdLowerProfile(np.clip(false, 0.0, 1.0), np.clip(true, 0.0, 1.0))


def _smoothed_below(
    thresholds: Array, most: float, characteristic: Characteristic, factor: float
) -> Array:
    """P(factor S + N(0, 1) <= t), within `_SERIES_ERROR`."""
    if factor < 0.0:
        return 1.0 - _smoothed_below(-thresholds, most, characteristic, -factor)
    if factor == 0.0:
        return np.asarray(ndtr(thresholds))
    low, high = -_PERIOD_MARGIN, factor * most + _PERIOD_MARGIN
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_LARGEST_FREQUENCY / unit) + 1.0)
    transform = np.exp(-(frequencies**2) / 2.0) * characteristic(factor * frequencies)
    inside = np.clip(thresholds, low, high)
    # The integral of the series from the lower end, where there is nothing.
    waves = np.exp(-1j * np.outer(inside, frequencies)) - np.exp(-1j * low * frequencies)
    series = waves @ (transform / (-1j * frequencies))
    below = unit / math.pi * series.real + (inside - low) / (high - low)
    return np.asarray(np.clip(below, 0.0, 1.0))


def most_of_sum(terms: Array, probability: float) -> float:
    """A limit of the sum of drawn terms that it exceeds with a chance of `_LOST_CHANCE`, at most.

    Each term is drawn with this probability.  By Bernstein's inequality: draws are independent, or
    exclude each other.
    """
    log, largest = -math.log(_LOST_CHANCE), float(terms.max(initial=0.0))
    variance = probability * float(terms @ terms)
    off = log * largest / 3.0
    off += math.sqrt(off * off + 2.0 * log * variance)
    return min(float(terms.sum()), probability * float(terms.sum()) + off)


def drawn_profile(
    terms: Array, probability: float, moves: Moves = (1.0, 0.0), *, one_of: int = 1
) -> ThresholdLowerProfile:
    """`smoothed_lower_profile` of the sum of the drawn terms, of which none is negative.

    Each is drawn with this probability, independently; or, of every `one_of` that follow each
    other, at most one, each with this probability.
    """

    def characteristic(frequencies: Array) -> NDArray[np.complex128]:
        return _characteristic(frequencies, terms, probability, one_of)

    return smoothed_lower_profile(most_of_sum(terms, probability), characteristic, moves)


def _characteristic(
    frequencies: Array, terms: Array, probability: float, one_of: int
) -> NDArray[np.complex128]:
    """E e^{iuS}."""
    product = np.ones(frequencies.size, dtype=complex)
    rows = max(1, _TERMS_BLOCK // (frequencies.size * one_of))
    for first in range(0, terms.size, rows * one_of):
        part = terms[first : first + rows * one_of]
        # Where the last epoch is cut short, the missing steps add nothing.
        part = np.append(part, np.zeros(-part.size % one_of)).reshape(-1, one_of)
        moved = np.exp(1j * frequencies[:, None, None] * part) - 1.0
        product *= np.prod(1.0 + probability * moved.sum(axis=2), axis=1)
    return product


def mixed_means_profile(weights: Array, sums: Array, moves: Moves) -> ThresholdLowerProfile:
    """The profile of ours S + N(0, 1) against theirs S + N(0, 1), S one of few sums of at least 0.

    Weights may be rounded down: what is missing tells nothing.
    """
    ours, theirs = moves
    most = float(sums.max(initial=0.0))
    highest = max(max(ours, 0.0) * most + 9.0, max(theirs, 0.0) * most + 37.0)
    thresholds = np.linspace(min(theirs, 0.0) * most - 9.0, highest, _THRESHOLDS // 3)
    missing = max(0.0, 1.0 - float(weights.sum()))

    def below(factor: float, sign: float) -> Array:
        parts = np.array_split(thresholds, 1 + sums.size // 256)
        return np.concatenate(
            [ndtr(sign * (part[:, None] - factor * sums)) @ weights for part in parts]
        )

    false = np.concatenate([below(theirs, -1.0), below(ours, 1.0)]) + missing
    true = np.concatenate([below(ours, -1.0), below(theirs, 1.0)])
    return ThresholdLowerProfile(np.minimum(false, 1.0), true)


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
        rows = max(1, _DRAWS_BLOCK // weights.size)
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


def _join(parts: Sequence[Draws]) -> Draws:
    """The sum of independent sums of draws."""
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
    return HiddenSteps(_join([last, earlier]), chance, earlier, _join([others, earlier]))


def drawn_once(gap: float, steps: int, length: int, chance: float) -> HiddenSteps:
    """Every `length` steps, from a step on that is drawn once, each with this chance."""
    ends = [0, steps % length, length] if steps > length else [0, steps]
    log_epoch = length * log_of(gap)
    again = math.exp(log_epoch) * sum_of_powers(log_epoch, -(-steps // length) - 1)
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
        return _join([])
    if gap * length > _FLAT_EPOCH:
        # Once an epoch is negligible, all before it are treated as one more.
        reach = min(count, 1 + math.ceil(2.0 * _NEGLIGIBLE_LOG / (gap * length)))
        bounds = start + length * np.arange(reach + 1)
        edges = _edges(gap, bounds.tolist())
        low, high, sizes = _weights(gap, edges)
        first = np.searchsorted(edges, bounds[:-1])
        recent = Draws(low, high, sizes * chance, first, np.ones(reach))
        rest = _draws_of_epochs(gap, int(bounds[-1]), length, np.array([0, count - reach]), chance)
        return _join([recent, rest])
    ages = _edges(gap, [start, start + count * length])
    return _draws_of_epochs(gap, start, length, np.unique((ages - start) // length), chance)


def _draws_of_epochs(gap: float, start: int, length: int, epochs: IntArray, chance: float) -> Draws:
    """Draws of whole epochs whose steps all have nearly the same weight, in groups of epochs."""
    sizes = np.diff(epochs).astype(np.float64)
    if not sizes.sum() > 0.0:
        return _join([])
    ages = start + length * epochs
    high, low = _powers(gap, ages[:-1]), _powers(gap, ages[1:] - 1)
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
        return _join([])
    edges = _edges(gap, bounds)
    low, high, sizes = _weights(gap, edges)
    if every:
        times = -(-(steps - edges[:-1]) // every)
        again = sums_of_powers(every * log_of(gap), times)
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
        log_c = log_of(min(gap, 0.999_999))
        least = math.exp(max(last * log_c / 2.0, -_NEGLIGIBLE_LOG))
        logs = np.log(np.linspace(1.0, least, _MAX_GROUPS))
        inner = np.minimum(2.0 * logs / log_c, float(last)).astype(np.int64) + 1
        ages = np.concatenate([ages, inner])
    return np.unique(ages[(ages >= first) & (ages <= last)])


def _weights(gap: float, edges: IntArray) -> tuple[Array, Array, Array]:
    """The least and largest weight of the ages between edges, and how many ages these are."""
    low, high = _powers(gap, edges[1:] - 1), _powers(gap, edges[:-1])
    sizes = np.diff(edges).astype(np.float64)
    return down(low, MILLIONS_OF_ROUNDINGS), up(high, MILLIONS_OF_ROUNDINGS), sizes


def _powers(gap: float, ages: IntArray) -> Array:
    return np.exp(logs_of_powers(log_of(gap), ages))


def below(thresholds: Array, draws: Draws, factor: float, *, above_truth: bool) -> Array:
    """P(factor S + N(0, 1) <= t), where S is rounded down if the result is to be above the truth.

    With a negative factor S is rounded up for that.  The result is within `ERROR`.
    """
    if factor < 0.0:
        return 1.0 - below(-thresholds, draws, -factor, above_truth=not above_truth)
    if factor == 0.0:
        return np.asarray(ndtr(thresholds))
    most = factor * draws.most(_LOST_CHANCE)
    low, high = -_PERIOD_MARGIN, most + _PERIOD_MARGIN
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_LARGEST_FREQUENCY / unit) + 1.0)
    transform = np.exp(-(frequencies**2) / 2.0)
    transform = transform * draws.characteristic(factor * frequencies, high=not above_truth)
    inside = np.clip(thresholds, low, high)
    # The integral of the series from the lower end, where there is nothing.
    terms = transform / (-1j * frequencies)
    turns = np.outer(inside, frequencies)
    start = float((np.exp(-1j * low * frequencies) @ terms).real)
    series = np.cos(turns) @ terms.real + np.sin(turns) @ terms.imag - start
    share = (inside - low) / (high - low)
    return np.asarray(np.clip(unit / math.pi * series + share, 0.0, 1.0))


def within_reach(
    draws: Sequence[Draws], factors: tuple[float, float]
) -> tuple[float, tuple[float, float]]:
    """The largest sum, and the factors, made smaller together if sums are too large.

    More noise would have the same effect.
    """
    most = max(one.most(_LOST_CHANCE) for one in draws)
    farthest = max(abs(factor) for factor in factors) * most
    smaller = min(1.0, FARTHEST_MEAN / farthest) if farthest > 0.0 else 1.0
    return most, (factors[0] * smaller, factors[1] * smaller)


def threshold_profile(draws: Draws, ours: float, theirs: float) -> ThresholdLowerProfile:
    """The profile of ours S + N(0, 1) against theirs S + N(0, 1), rounded towards privacy.

    `ours` is the larger.
    """
    most, (ours, theirs) = within_reach((draws,), (ours, theirs))
    low = min(theirs, 0.0) * most - 9.0
    high = min(max(ours, 0.0) * most + 9.0, max(theirs, 0.0) * most + 37.0)
    thresholds = np.linspace(low, high, _SMOOTHED_THRESHOLDS)
    below_ours = below(thresholds, draws, ours, above_truth=True)
    below_theirs = below(thresholds, draws, theirs, above_truth=False)
    above_theirs = ndtr(-thresholds) if theirs == 0.0 else 1.0 - below_theirs + ERROR
    false = np.concatenate([above_theirs, below_ours + ERROR])
    true = np.concatenate([1.0 - below_ours - ERROR, below_theirs - ERROR])
    return ThresholdLowerProfile(np.clip(false, 0.0, 1.0), np.clip(true, 0.0, 1.0))


@dataclass(frozen=True)
class Tails:
    """P(y > edge), for `edges` from -inf to inf, by whether the last step saw the example.

    Rounded down in our world and up in theirs, but for `lost`.
    """

    edges: Array
    ours_seen: Array
    ours_not: Array
    theirs_seen: Array
    theirs_not: Array
    lost: float = 0.0


def gaussian_tails(edges: Array, means: tuple[float, float], *, lost: float = 0.0) -> Tails:
    """y is N(mean, 1) if the last step saw the example, and N(0, 1) if not."""
    ours, theirs = (np.asarray(ndtr(mean - edges)) for mean in means)
    neither = np.asarray(ndtr(-edges))
    return Tails(edges, ours, neither, theirs, neither, lost)


def edges_up_to(highest: float) -> Array:
    """Edges from -inf over 0 to far above this mean, and inf."""
    return np.concatenate(
        [[-np.inf], np.linspace(0.0, min(highest + 8.0, 37.0), _STEP_EDGES), [np.inf]]
    )


def two_statistics_profile(
    hidden: HiddenSteps, factors: tuple[float, float], tails: Tails, *, last_in_sum: bool
) -> ThresholdLowerProfile:
    """x with a factor for each world, ours the larger, and y together.

    The sum has the last step too where `last_in_sum`.
    """
    most, (ours, theirs) = within_reach((hidden.if_last, hidden.if_not), factors)
    low, high = (min(theirs, 0.0), max(ours, 0.0))
    low, high = low * (most + 1.0) - _CELLS_MARGIN, high * (most + 1.0) + _CELLS_MARGIN
    edges = np.linspace(low, high, _SUM_CELLS)

    def cells(draws: Draws, factor: float, shift: float, *, above_truth: bool) -> Array:
        if factor == 0.0:
            return _normal_cells(edges)
        under = below(edges - factor * shift, draws, factor, above_truth=above_truth)
        rising = np.maximum.accumulate(under)
        return np.diff(np.concatenate([[0.0], rising, [1.0]]))

    own = 1.0 if last_in_sum else 0.0
    chance = hidden.last
    ours_seen = chance * cells(hidden.if_last, ours, own, above_truth=True)
    ours_not = (1.0 - chance) * cells(hidden.if_not, ours, 0.0, above_truth=True)
    theirs_seen = chance * cells(hidden.if_last, theirs, own, above_truth=False)
    theirs_not = (1.0 - chance) * cells(hidden.if_not, theirs, 0.0, above_truth=False)
    ours_mass = _mass(ours_seen, tails.ours_seen) + _mass(ours_not, tails.ours_not)
    theirs_mass = _mass(theirs_seen, tails.theirs_seen) + _mass(theirs_not, tails.theirs_not)
    first = _accepted_edges(
        np.where(ours_mass.sum(axis=1) > _LEAST_CELL_MASS, ours_mass.T, 0.0).T, theirs_mass
    )
    hit = tails.ours_seen[first] @ ours_seen + tails.ours_not[first] @ ours_not
    fooled = tails.theirs_seen[first] @ theirs_seen + tails.theirs_not[first] @ theirs_not
    hit = np.clip(hit - ERROR - tails.lost, 0.0, 1.0)
    fooled = up(fooled, THOUSANDS_OF_ROUNDINGS) + (ERROR if theirs else 0.0) + tails.lost
    fooled = np.minimum(fooled, 1.0)
    return ThresholdLowerProfile(
        np.concatenate([fooled, 1.0 - hit]), np.concatenate([hit, 1.0 - fooled])
    )


def _normal_cells(edges: Array) -> Array:
    """N(0, 1) probabilities between `edges`, to all digits: small ones must not become 0."""
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    lows, highs = ends[:-1], ends[1:]
    return np.asarray(np.where(lows > 0.0, ndtr(-lows) - ndtr(-highs), ndtr(highs) - ndtr(lows)))


def _mass(cells: Array, tails: Array) -> Array:
    """The masses of the cells of x and y together."""
    return np.multiply.outer(cells, np.maximum(-np.diff(tails), 0.0))


def _accepted_edges(ours: Array, theirs: Array) -> Array:
    """The first accepted edge of y for each likelihood ratio (a row) and cell of x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(ours) - np.log(theirs), nan=-np.inf)
    rising = np.maximum.accumulate(ratios, axis=1)
    levels = np.concatenate([-_LOG_RATIO_LEVELS[:0:-1], _LOG_RATIO_LEVELS])
    first = np.array([np.searchsorted(row, levels, side="right") for row in rising]).T
    return np.minimum.accumulate(first, axis=1)
