r"""The residual distance Z of participations before the last steps, and the choice of these steps.

The last R steps are solved exactly, with the energy q.  Earlier participations leave the distance Z
after shifts of energy e, and then

.. math:: \mu^2 \le (\sqrt q + \kappa Z)^2 + e , \qquad
    \kappa = c^R / \sqrt{1 + c^2 + .. + c^{2(R-1)} + h}

(`docs/tightness.md#participation-energy`).  Every choice of R and of shifts is valid.  Steps are
counted backwards, j = 0 the latest.  Shifts are :math:`g c^{2j}` in units of the end, or the whole
distance if it is smaller.  Two laws dominate Z:

* for c < 1 the recursion :math:`z \leftarrow (c^m z - G)^+ + N`, N binomial, over blocks of m
  steps in which only the distance before the block is shifted, on a grid and rounded up;
* always, as :math:`Z = \max_k \sum_{j < k} (c^j V_j - g c^{2j})`, the maximal inequality for
  martingales, :math:`P(Z > z) \le \exp(\max_k \Psi_k(\theta) - \theta z)` for every
  :math:`\theta`, where :math:`\Psi_k` is the logarithm of the moment of the sum to k.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    down,
    up,
)
from lastiterate._progress import track

RATES = np.geomspace(1e-3, 300.0, 160)  # the largest weight is 1
_TERMS = 4096  # groups of participations by age
_LEVELS = 400  # of the law
_UNLIKELY = 1e-15
_MEMORY = 60.0  # time constants; older participations are e^-60 of the whole
_BLOCKS = 128  # in a time constant, or in the run
_RECURSION_MEMORY = 12  # time constants of the recursion
_CELLS = 32_768
_CUT = 1e-16  # of binomial probabilities
_FOLDS = 30.0  # a distance exceeded with probability e^-30
_EXCEEDED = 1e-13  # an upper bound on that probability
_ROUNDING = 1e-12  # of the probabilities of one block
LONGEST_WINDOW = 8_000
_SLOPES = (0.5, 0.8, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.3, 2.7, 3.2, 4.0)
_LONGEST_SECOND = 4_000  # of the second window
_WINDOW_MEMORY = 12.0  # time constants; older steps do not matter for the choice
_LEAST_POWER = math.exp(-700.0)  # smaller ones would underflow


class ResidualLaw(NamedTuple):
    """A law: Z is at most levels[i] with probability masses[i], or anything with `lost`."""

    levels: Array
    masses: Array
    lost: float


class Terms(NamedTuple):
    """Weights c^j, shifts for g = 1, the number of each, and the sum of the oldest weights.

    If there are many they are grouped: each group has its largest weight and its least shift.
    """

    weights: Array
    shifts: Array
    counts: Array
    rest: float


@lru_cache(maxsize=16)
def residual_law(
    *, gap: float, steps: int, probability: float, cap: float, shift: float = 0.0
) -> ResidualLaw:
    """A law that dominates that of min(Z, cap)."""
    listed = terms(gap, steps)
    top = min(float(listed.weights @ listed.counts), cap)
    if top == 0.0:
        return ResidualLaw(np.zeros(1), np.ones(1), 0.0)
    if 0.0 < gap < 0.5:
        return _by_recursion(gap, steps, probability, cap, shift, top)
    return _by_moments(listed, probability, cap, shift, top)


def terms(gap: float, steps: int, most: int = _TERMS) -> Terms:
    """The weights of participations by age, and the shifts for each unit of g."""
    if gap >= 1.0 or gap == 0.0:
        count = float(steps if gap == 0.0 else min(steps, 1))
        return Terms(np.ones(1), np.ones(1), np.array([count]), 0.0)
    log_c = log_of(gap)
    last = min(steps, math.ceil(_MEMORY / gap))
    edges = np.unique(np.linspace(0, last, min(last, most) + 1).astype(np.int64))
    rest = power(log_c, last) * min(float(steps - last), 1.0 / gap)
    weights = np.exp(edges[:-1] * log_c)
    shifts = down(np.exp(2 * (edges[1:] - 1) * log_c), THOUSANDS_OF_ROUNDINGS)
    return Terms(weights, shifts, np.diff(edges).astype(float), rest)


def peaks(listed: Terms, probability: float, shift: float, rates: Array) -> Array:
    """The largest Psi_k for each rate: at the end of a group, as it is linear within."""
    result = np.empty(rates.size)
    for i, rate in enumerate(rates):
        each = np.log1p(probability * np.expm1(rate * listed.weights))
        each = up(each, THOUSANDS_OF_ROUNDINGS)
        sums = np.cumsum(listed.counts * (each - rate * shift * listed.shifts))
        result[i] = max(0.0, sums.max())
    return result


def shift_energy(gap: float, steps: int, shift: float) -> float:
    """The energy of the shifts, rounded up."""
    if not shift:
        return 0.0
    return up(shift**2 * sum_of_powers(2 * log_of(gap), steps), MILLIONS_OF_ROUNDINGS)


def _by_recursion(
    gap: float, steps: int, probability: float, cap: float, shift: float, top: float
) -> ResidualLaw:
    size = max(1, int(min(1.0 / gap, steps) / _BLOCKS))
    kept = min(math.ceil(steps / size), math.ceil(_RECURSION_MEMORY / (gap * size)))
    log_c = log_of(gap)
    decay = up(power(log_c, size), THOUSANDS_OF_ROUNDINGS)
    before = max(steps - kept * size, 0)
    most_older = _hardly_exceeded(gap, before, probability) if before else 0.0
    older = power(log_c, kept * size) * min(most_older, 1.0 / gap)
    shifted = down(shift * sum_of_powers(2 * log_c, size), MILLIONS_OF_ROUNDINGS)
    counts = np.arange(size + 1)
    chances = scipy.stats.binom.pmf(counts, size, probability)
    common = np.flatnonzero(chances > _CUT)
    lost = kept * (size * _CUT + _ROUNDING) + (_EXCEEDED if before else 0.0)
    reach = _end(gap, steps, probability, top) + float(common[-1]) + 1.0
    cells = max(1, int(_CELLS / reach))  # in one participation
    length = math.ceil(reach * cells) + 1
    level = np.arange(length) / cells
    law = np.zeros(length)
    law[0] = 1.0
    most = min(math.ceil(min(cap * cells, length)), length - 1)
    for block in track("residual of earlier steps", range(kept - 1, -1, -1)):
        less = np.maximum(decay * level - shifted * power(log_c, block * size), 0.0)
        index = np.ceil(down(less * cells, FEW_ROUNDINGS)).astype(np.int64)
        moved = np.bincount(index, weights=law, minlength=length)
        law = np.zeros(length)
        for count in common:
            added = int(count) * cells
            law[added:] += chances[count] * moved[: length - added]
        law[most] += law[most + 1 :].sum()
        law[most + 1 :] = 0.0
    lost += abs(1.0 - float(law.sum()))
    ends = _ends(law)
    masses = np.diff(np.cumsum(law)[ends], prepend=0.0)
    levels = up(np.minimum(level[ends] + older, cap), THOUSANDS_OF_ROUNDINGS)
    return ResidualLaw(levels, np.maximum(masses, 0.0), lost + 1e-12)


def _ends(law: Array) -> NDArray[np.int64]:
    """The indices of few cells, to which mass between them is moved up."""
    used = np.flatnonzero(law > _UNLIKELY / law.size)
    first, last = int(used[0]), int(np.flatnonzero(law)[-1])
    return np.unique(np.append(np.linspace(first, used[-1], 2 * _LEVELS).astype(np.int64), last))


def _end(gap: float, steps: int, probability: float, top: float) -> float:
    """A distance that Z exceeds with negligible probability, with or without shifts."""
    listed = terms(gap, steps, most=512)
    levels = (peaks(listed, probability, 0.0, RATES) + _FOLDS) / RATES
    return min(float(levels.min()) * 1.01, top)


def _hardly_exceeded(gap: float, steps: int, probability: float) -> float:
    """A sum of weights that participations exceed with probability at most `_EXCEEDED`."""
    listed = terms(gap, steps, most=512)
    return _end(gap, steps, probability, float(listed.weights @ listed.counts)) + listed.rest


def _by_moments(
    listed: Terms, probability: float, cap: float, shift: float, top: float
) -> ResidualLaw:
    largest = peaks(listed, probability, shift, RATES)
    coarse = np.geomspace(min(1e-6 * top, 1e-2), top, _LEVELS)
    exceeded = _tail(largest, coarse)
    low = coarse[exceeded >= 0.99][-1] if exceeded[0] >= 0.99 else 0.0
    high = min(1.1 * coarse[exceeded > _UNLIKELY][-1], top) if exceeded[0] > _UNLIKELY else top
    single = [1.0] if 0.0 < 1.0 < high else []
    levels = np.unique(np.concatenate([[0.0, top], single, np.linspace(low, high, _LEVELS)]))
    tail = _tail(largest, levels)
    tail[0] = min(
        tail[0], probability * float(listed.counts.sum())
    )  # of at least one participation
    tail = np.minimum.accumulate(np.minimum(tail, 1.0))
    tail[-1] = 0.0  # neither its largest value nor the cap is exceeded
    masses = -np.diff(tail, prepend=1.0)
    needed = masses > 0.0
    levels = up(np.minimum(levels + listed.rest, cap)[needed], THOUSANDS_OF_ROUNDINGS)
    return ResidualLaw(levels, masses[needed], 0.0)


def _tail(largest: Array, levels: Array) -> Array:
    """An upper bound on P(Z > level)."""
    logs = np.min(largest[:, None] - RATES[:, None] * levels, axis=0)
    return np.asarray(up(np.exp(np.minimum(logs, 0.0)), MILLIONS_OF_ROUNDINGS))


class ExactWindow(NamedTuple):
    """The last `length` steps, and the shift in the step before them (c^j of it at age j)."""

    length: int
    shift: float


def cost_per_residual(gap: float, window: int, release_in_steps: float) -> float:
    """kappa, rounded up."""
    log_c = log_of(gap)
    kept = max(power(log_c, window), _LEAST_POWER)
    return at_least(
        kept / math.sqrt(sum_of_powers(2 * log_c, window) + release_in_steps), ulps=10_000
    )


class _Quantiles(NamedTuple):
    """Quantiles at which residuals, in e-folds, and energies, in variances, are compared."""

    residual: float
    energy: float


_NEAR, _FAR = _Quantiles(0.5, 3.0), _Quantiles(3.0, 8.0)


@lru_cache(maxsize=64)
def best_windows(
    gap: float,
    steps: int,
    probability: float,
    cap: float,
    release_in_steps: float,
    longest: int = LONGEST_WINDOW,
) -> tuple[ExactWindow, ...]:
    """The windows and shifts whose cost looks least, near the mean and far out."""
    problem = _Problem(gap, steps, probability, cap, release_in_steps, longest)
    first, second = (_best(problem, quantiles) for quantiles in (_NEAR, _FAR))
    return (first,) if second == first or second.length > _LONGEST_SECOND else (first, second)


class _Problem(NamedTuple):
    gap: float
    steps: int
    probability: float
    cap: float
    release_in_steps: float
    longest: int


def _best(problem: _Problem, quantiles: _Quantiles) -> ExactWindow:
    gap, steps, probability = problem[:3]
    # Older steps are neglected, so that very long runs all have the same window.
    steps = min(steps, math.ceil(_WINDOW_MEMORY / gap)) if gap > 0.0 else steps
    longest = min(steps, problem.longest)
    lengths = sorted({max(1, round(longest * 0.9**k)) for k in range(90)})
    # Shifts before the window help if its length is comparable with the memory of the run.
    memory = min(1.0 / gap, 2.0 * longest) if gap > 0.0 else 2.0 * longest
    choices = [ExactWindow(length, 0.0) for length in lengths] + [
        ExactWindow(length, slope * probability * power(log_of(gap), length))
        for length in lengths
        if length < steps and 0.2 * memory <= length <= 3.0 * memory and gap < 0.5
        for slope in _SLOPES
    ]
    shorter = problem._replace(steps=steps)
    return min(choices, key=lambda choice: _cost(choice, shorter, quantiles))


def _cost(window: ExactWindow, problem: _Problem, quantiles: _Quantiles) -> float:
    gap, steps, probability, cap, release_in_steps, _ = problem
    length, shift = window
    spread = probability * (1 - probability) * (math.log1p(length / (1 + release_in_steps)) + 0.58)
    inside = math.sqrt(probability**2 * length + quantiles.energy * spread)
    left = min(cap, _residual(problem, steps - length, shift, quantiles.residual))
    return math.hypot(
        inside + cost_per_residual(gap, length, release_in_steps) * left,
        math.sqrt(shift_energy(gap, steps - length, shift)),
    )


def _residual(problem: _Problem, steps: int, shift: float, folds: float) -> float:
    """A quantile of the residual distance, roughly."""
    if steps == 0:
        return 0.0
    listed = terms(problem.gap, steps, most=256)
    rates = RATES[::6]
    largest = peaks(listed, problem.probability, shift, rates)
    return float(np.min((largest + folds) / rates))
