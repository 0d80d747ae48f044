r"""Exponential moments :math:`E\,e^{sq}` of the least energy q of random participations.

In each of the steps before the end the example takes part with probability p, independently.  A
participation of age j has size :math:`c^j`, the noise of that age variance :math:`c^{2j}`, and
noise on release counts as h steps.  A recursion from the end backwards bounds the moments, by
shifts in blocks of steps (`docs/tightness.md#participation-energy`).  Its *value* is a function of
the distance before a block, one for each row (rate), increasing and convex; it is computed on a
grid, with chords between its points.  With next to no contraction the law of the faces of the
convex minorant may be better (`face_moments`).  All terms are positive, so there is no least delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, IntArray, down, up
from lastiterate.bounds.subsampling.energy_law import without_ties

_LARGEST_GAP = 0.9  # more contraction is not used
_MOST_MEMORIES_FOR_FACES = 0.5  # up to which it may be better to ignore contraction
_LONGEST_MEMORIES = 45.0  # older participations are e^-45 of the whole
_BINOMIAL_FOLDS = 50.0  # counts rarer than e^-50 are left out

# Blocks, and the grid of distances.
_BLOCK_GROWTH = 0.06  # of blocks, with their age
_BLOCK_MEMORIES = 0.06  # memories -1/log c, the longest of recent blocks
_RECENT_MEMORIES = 3.0
_FINEST_CELLS = 16  # cells in a participation
_DISTANCE_CELLS = 400
_FARTHEST_DEVIATIONS = 8.0  # of the participations in memory, for the largest distance

# Counted participations.
_COUNTED_MEMORIES = 1.0  # of steps whose participations are counted
_MOST_EXPECTED_COUNT = 4.0  # participations among these, at most
_COUNT_FOLDS = 40.0  # numbers of participations rarer than e^-40 are lost
_MOST_IN_BLOCK = 6  # participations; more count as later ones
_LARGEST_COUNTED_PROBABILITY = (
    0.5  # counting does not help if participations are more likely than this
)
_LARGEST_LOG_RATIO = 300.0  # beyond which exponentials may underflow

# Faces of the convex minorant.
_MOST_STEPS_FOR_FACES = 100_000  # beyond which factorials cost digits
_MOST_LONG_STEPS = 2_000
_LONG_STEPS_IN_RELEASE = 12
_SLOPE_EXCESSES = (1.1, 2.2)  # of the slope over the mean, by trial
_NEGLIGIBLE_EXCESS = 1e-15  # an excess so rare counts as infinite
_STEEP_FOLDS = 40.0  # longer steep faces are rarer than e^-40
_LARGEST_EXPONENT = 600.0

Value = Callable[[Array], Array]


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
    cache = _moment_cache(min(gap, _LARGEST_GAP), steps, probability, release, cap)
    return cache.at(rates)


class EnergyMoments(NamedTuple):
    """log E e^(s q) for each rate s, except with probability `lost`.

    The root of the energy may be larger than that of q by `extra_mu`.
    """

    logs: Array
    lost: float
    extra_mu: float = 0.0


@lru_cache(maxsize=32)
def _moment_cache(
    gap: float, steps: int, probability: float, release: float, cap: float
) -> _MomentCache:
    return _MomentCache(partial(_moments, gap, steps, probability, release, cap))


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


def _moments(
    gap: float, steps: int, probability: float, release: float, cap: float, rates: Array
) -> EnergyMoments:
    recursive = recursive_moments(log_of(gap), steps, probability, release, rates, cap)
    if not (gap * steps < _MOST_MEMORIES_FOR_FACES and steps < _MOST_STEPS_FOR_FACES):
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
    span = min(steps, math.ceil(_LONGEST_MEMORIES / -log_c)) if log_c < 0.0 else steps
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


def blocks(log_c: float, steps: int, release: float) -> Iterator[Block]:
    """The blocks from the last one backwards, longer with age."""
    age = 0
    while age < steps:
        wanted = _BLOCK_GROWTH * (age + 1.0 + release)
        if log_c < 0.0:
            beyond = max(0.0, -age * log_c - _RECENT_MEMORIES)
            wanted = min(wanted, _BLOCK_MEMORIES / -log_c * math.exp(min(beyond / 2.0, 30.0)))
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


def grid_of_distances(log_c: float, steps: int, probability: float) -> Array:
    """A grid of distances: whole parts of a participation, or whole numbers of them."""
    memory = -1.0 / log_c if log_c < 0.0 else math.inf
    mean = probability * min(float(steps), memory)
    # In long runs the best shifts leave nearly all participations in memory until late.
    farthest = mean * min(1.0, steps / memory) + _FARTHEST_DEVIATIONS * math.sqrt(mean) + 4.0
    finest = farthest / _DISTANCE_CELLS
    cell = 1.0 / min(math.floor(1.0 / finest), _FINEST_CELLS) if finest < 1.0 else math.ceil(finest)
    return cell * np.arange(math.ceil(farthest / cell) + 1, dtype=np.float64)


def at_the_end(rates: Array, release: float) -> Value:
    """The value after all steps: the last step and the release shift the whole distance."""

    def value(distances: Array) -> Array:
        return rates[:, None] * np.square(distances) / (1.0 + release)

    return value


def before_block(
    value: Value, block: Block, probability: float, grid: Array, rates: Array
) -> tuple[Value, float]:
    """The value before the block, by shifts that know the past only, and the lost probability."""
    cells, logs, lost = _participations_in_cells(block, probability, grid[1])
    reached = value(grid[1] * np.arange(grid.size + cells[-1]))
    after = _log_mean_exp(reached, cells, logs, grid.size)
    return with_best_shifts(grid, after, block, rates), lost


def _participations_in_cells(
    block: Block, probability: float, cell: float
) -> tuple[IntArray, Array, float]:
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


def _log_mean_exp(reached: Array, cells: IntArray, logs: Array, size: int) -> Array:
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
    spread = math.sqrt(2.0 * _BINOMIAL_FOLDS * mean) + _BINOMIAL_FOLDS
    first, last = max(0, math.floor(mean - spread)), min(steps, math.ceil(mean + spread))
    if probability >= 1.0:
        return BinomialWindow(np.array([float(steps)]), np.zeros(1), 0.0)
    values = np.arange(first, last + 1, dtype=np.float64)
    odds = probability / (1.0 - probability)
    ratios = np.log((steps - values[:-1]) / (values[:-1] + 1.0) * odds)
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    logs -= logs.max()
    logs -= math.log(math.fsum(np.exp(logs)))
    kept = (logs > -_BINOMIAL_FOLDS) | (values < mean)
    values, logs = values[kept], logs[kept]
    few = logs > -_BINOMIAL_FOLDS
    start = min(int(np.argmax(few)), values.size - 1)
    below = math.fsum(np.exp(logs[:start]))
    values, logs = values[start:], logs[start:].copy()
    logs[0] = math.log(math.exp(logs[0]) + below)
    top = float(values[-1])
    lost = 0.0
    if top < steps:
        # From here on each is less than half of the one before, or the window ends far out.
        ratio = (steps - top) / (top + 1.0) * odds
        lost = up(math.exp(-_BINOMIAL_FOLDS) / max(1.0 - ratio, 1e-3), MILLIONS_OF_ROUNDINGS)
    return BinomialWindow(values, logs + MILLIONS_OF_ROUNDINGS, lost)


def counted_steps(log_c: float, steps: int, probability: float, cell: float) -> int:
    """The number of last steps whose participations are counted; 0 for none."""
    if probability > _LARGEST_COUNTED_PROBABILITY or cell > 1.0:
        return 0
    memory = -_COUNTED_MEMORIES / log_c if log_c < 0.0 else math.inf
    return math.floor(min(memory, _MOST_EXPECTED_COUNT / probability, float(steps)))


class CountedMoments:
    r"""U(z, k) for some rates, from the end backwards.

    That is the logarithm of :math:`E\,e^{sq}` for the distance z before the last A steps, given
    that k of these have the example.  Each block of m steps before is added by

    .. math:: U_{A+m}(z, j) \le \min_x \frac{s x^2}{c^2 + .. + c^{2m}} +
              \log E\,e^{U_A(c^m z - x + N,\, j - n)} ,

    where n of j participations are in the block and N is their discounted sum, on its two ends.
    The probability of very many participations is lost.  `docs/tightness.md#participation-energy`
    has the proof.
    """

    def __init__(
        self, grid: Array, rates: Array, release: float, probability: float, last: int
    ) -> None:
        self._most_participations = _most_participations(last, probability)
        self._grid, self._rates, self._probability = grid, rates, probability
        self._rows = np.repeat(rates, self._most_participations + 1)
        self._value: Value = at_the_end(self._rows, release)

    def add_block(self, block: Block) -> None:
        """Take the steps of the block before into account."""
        grid, most = self._grid, self._most_participations
        unit = round(1.0 / grid[1])  # cells in a participation
        in_block = min(max(_MOST_IN_BLOCK, most - block.age), most, block.steps)
        reached = self._value(grid[1] * np.arange(grid.size + in_block * unit))
        reached = reached.reshape(self._rates.size, most + 1, -1)
        least = math.floor(unit * block.least_kept)
        share = (1.0 - block.kept) / (1.0 - least / unit) if least < unit else 0.0
        ends = (_End(unit, 1.0 - down(share, MILLIONS_OF_ROUNDINGS)), _End(least, share))
        possible = min(most, block.age + block.steps) + 1  # no more than there are steps
        chances = _log_chances(block, most, in_block)[:, :possible]
        after = _log_mean_exp_by_count(reached[:, :possible], chances, ends, grid.size)
        numbers = np.minimum(np.arange(most + 1), possible - 1)
        after = after[:, numbers].reshape(self._rows.size, -1)
        self._value = with_best_shifts(grid, after, block, self._rows)

    def lost(self, last: int) -> float:
        """The probability of more participations in the `last` steps."""
        return math.exp(_log_beyond(last, self._probability, self._most_participations))

    def best_with(self, uncounted: Value, last: int) -> Value:
        """The better of the average over the number in the `last` steps and of `uncounted`."""
        logs = _log_binomial(last, self._probability, self._most_participations)
        value, shape = self._value, (self._rates.size, self._most_participations + 1, -1)

        def averaged(distances: Array) -> Array:
            given = value(distances).reshape(shape)
            return _log_sum([given[:, k] + logs[k] for k in range(self._most_participations + 1)])

        better = averaged(np.zeros(1)) < uncounted(np.zeros(1))

        def best(distances: Array) -> Array:
            return np.where(better, averaged(distances), uncounted(distances))

        return averaged if np.all(better) else best


def _most_participations(last: int, probability: float) -> int:
    """A number of participations that is exceeded with negligible probability."""
    low, high = math.floor(probability * last), last
    while low < high:
        middle = (low + high) // 2
        rare = _log_beyond(last, probability, middle) <= -_COUNT_FOLDS
        low, high = (low, middle) if rare else (middle + 1, high)
    return high


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


def _log_falling(count: int, most: int) -> Array:
    """log of count (count - 1) .. (count - k + 1) for k up to `most`."""
    with np.errstate(divide="ignore"):
        factors = np.log(np.maximum(count - np.arange(most, dtype=np.float64), 0.0))
    return np.append(0.0, np.cumsum(factors))


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


def _log_mean_exp_by_count(
    reached: Array, log_chances: Array, ends: tuple[_End, _End], size: int
) -> Array:
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
    if not relative.min() > -_LARGEST_LOG_RATIO:
        return _log_mean_exp_far_apart(reached, _outcomes(log_chances, ends), size)
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


def _log_mean_exp_far_apart(reached: Array, outcomes: Iterator[_Outcome], size: int) -> Array:
    """The result of `_log_mean_exp_by_count` if exponentials would underflow."""
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


def face_moments(steps: int, probability: float, release: float, rates: Array) -> EnergyMoments:
    """Moments of the energy over `steps` steps and a release worth `release`; inf if huge.

    As in `energy_law.law_with_release` the faces of the convex minorant that are steeper than g are
    truncated at that slope, and the release shifts the excess.  Only E e^(s q) is needed, so the
    exponential formula needs no transform, and all terms are positive.

    m steps may count as one, with all their participations at its end: these are shifted from the
    next step on, and after the last step by the release, of which as much as m steps is reserved
    for that.  (The noise of the first m steps is not used.)  The law of the faces does not need
    increments to be 0 or 1.
    """
    length = max(
        math.ceil(steps / _MOST_LONG_STEPS), math.floor(release / _LONG_STEPS_IN_RELEASE), 1
    )
    if length > 1 and not length < release:
        return EnergyMoments(np.full(rates.size, np.inf), 0.0)
    length = min(length, steps)
    number = math.ceil(steps / length)  # more steps never cost less
    used_release = release - length if length > 1 else release
    walk = _Walk(number, length, probability)
    slopes = [
        without_ties(number, slope * length) / length
        for excess in _SLOPE_EXCESSES
        if (slope := probability * (1.0 + excess / math.sqrt(probability * max(used_release, 1.0))))
        < 0.9
    ]
    if not (slopes and used_release > 0.0):
        return EnergyMoments(np.full(rates.size, np.inf), 0.0)
    flat = _flat_moments(slopes, walk, rates)
    every = [
        _moments_at_slope(slope, walk, used_release, rates, flat[k])
        for k, slope in enumerate(slopes)
    ]
    # Each holds except for its own rare event.
    logs = np.asarray(np.min([one.logs for one in every], axis=0), dtype=np.float64)
    return EnergyMoments(logs, sum(one.lost for one in every))


class _Walk(NamedTuple):
    """A number of long steps, their length, and the probability of a participation in a step."""

    number: int
    length: int
    probability: float


def _moments_at_slope(
    slope: float, walk: _Walk, release: float, rates: Array, flat: Array
) -> EnergyMoments:
    steep, lost = _steep_masses(slope, walk)
    ages = walk.length * np.arange(steep.shape[0])[:, None]
    participations = np.arange(steep.shape[1], dtype=np.float64)
    excess = np.maximum(participations - slope * ages, 0.0)
    # The second term shifts each participation as it comes.
    with np.errstate(over="ignore"):  # hardly any noise on release is not used
        costs = np.minimum(slope**2 * ages + np.square(excess) / release, participations)
    used = steep > 0.0
    order = np.argsort(-costs[used])
    rare = order[np.cumsum(steep[used][order]) <= _NEGLIGIBLE_EXCESS]
    kept = np.where(used, steep, 0.0)
    kept[tuple(index[rare] for index in np.nonzero(used))] = 0.0
    where = np.nonzero(kept)
    logs = np.full(rates.size, np.inf)
    few = rates * float(costs[where].max()) < _LARGEST_EXPONENT
    with np.errstate(over="ignore"):
        terms = kept[where] * np.exp(rates[few, None] * costs[where])
        sums = np.sum(terms * flat[walk.number - where[0]][:, few].T, axis=1)
    logs[few] = np.log(up(sums, MILLIONS_OF_ROUNDINGS * walk.number))
    return EnergyMoments(logs, lost + 2.0 * _NEGLIGIBLE_EXCESS)


def _steep_masses(slope: float, walk: _Walk) -> tuple[Array, float]:
    """[k, N]: P(N_j > slope j for all j <= k, N_k = N), and the lost probability."""
    p = walk.probability
    rate = slope * math.log(slope / p) + (1.0 - slope) * math.log((1.0 - slope) / (1.0 - p))
    rate *= walk.length
    longest = min(walk.number, math.ceil(_STEEP_FOLDS / rate))
    one = binomial_window(walk.length, p)
    chances = np.exp(one.logs)
    step = np.zeros(int(one.values[-1]) + 1)
    step[one.values.astype(np.int64)] = chances
    most = int(binomial_window(longest * walk.length, p).values[-1])
    participations = np.arange(most + 1)
    masses = np.zeros((longest + 1, most + 1))
    masses[0, 0] = 1.0
    for k in range(1, longest + 1):
        row = np.convolve(masses[k - 1], step)[: most + 1]
        masses[k, : row.size] = np.where(
            participations[: row.size] > slope * walk.length * k, row, 0.0
        )
    lost = longest * (one.lost + math.exp(-_BINOMIAL_FOLDS) * 1e3)
    if longest < walk.number:
        lost += math.exp(-_STEEP_FOLDS) / -math.expm1(-rate)
    return masses, lost


def _flat_moments(slopes: list[float], walk: _Walk, rates: Array) -> Array:
    """[j, k, i]: E e^(rates[i] cost) over k long steps, no face above slopes[j]; inf if huge."""
    steps = walk.length * np.arange(1, walk.number + 1, dtype=np.int64)[:, None]
    mean = walk.probability * steps
    first = np.maximum(np.floor(mean - np.sqrt(2.0 * _BINOMIAL_FOLDS * mean)) - 1.0, 0.0)
    width = int(np.max(np.floor(max(slopes) * steps) - first)) + 1
    numbers: Array = np.asarray(first + np.arange(width), dtype=np.float64)
    costs = np.square(numbers) / steps
    logs = _log_face_chances(steps, numbers, walk.probability)
    within = [numbers <= slope * steps for slope in slopes]
    faces = np.full((len(slopes), walk.number, rates.size), np.inf)
    for i, rate in enumerate(rates):
        exponents = rate * costs + logs
        if not float(np.max(exponents, where=within[-1], initial=-np.inf)) < _LARGEST_EXPONENT:
            continue
        # Numbers so large that they do not matter are left out.
        needed = np.any((exponents > -_BINOMIAL_FOLDS) & (numbers <= steps), axis=0)
        columns = int(np.flatnonzero(needed)[-1]) + 1
        terms = np.exp(np.minimum(exponents[:, :columns], _LARGEST_EXPONENT))
        for j, mask in enumerate(within):
            faces[j, :, i] = np.sum(terms, axis=1, where=mask[:, :columns])
        # Fewer participations than the first number cost no more than that.
        faces[:, :, i] += math.exp(-_BINOMIAL_FOLDS) * (np.exp(rate * costs[:, 0]) + width)
    faces = up(faces, MILLIONS_OF_ROUNDINGS)
    result = np.empty((len(slopes), walk.number + 1, rates.size))
    result[:, 0] = 1.0
    with np.errstate(over="ignore"):
        for k in range(1, walk.number + 1):
            before = result[:, k - 1 :: -1][:, :k]
            result[:, k] = np.einsum("hij,hij->hj", faces[:, :k], before) / k
    return result


def _log_face_chances(steps: NDArray[np.int64], numbers: Array, probability: float) -> Array:
    """The logarithms of binomial probabilities; those of impossible numbers are arbitrary."""
    factorials = gammaln(np.arange(int(steps[-1, 0]) + 1) + 1.0)
    some = np.minimum(numbers, steps).astype(np.int64)
    logs = factorials[steps] - factorials[some] - factorials[steps - some]
    return np.asarray(logs + xlogy(some, probability) + xlog1py(steps - some, -probability))
