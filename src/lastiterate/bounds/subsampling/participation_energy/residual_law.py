r"""A law that dominates the distance left behind by earlier random participations.

Steps are counted backwards, j = 0 the latest; V_j are independent and 1 with probability p.  A
plan that pays :math:`g c^{2j}` (in units of the end) whenever that much is there, at a cost
of :math:`g^2 \sum_j c^{2j}`, leaves a distance Z.  Two laws dominate it:

* for c < 1 the recursion :math:`z \leftarrow (c^m z - G)^+ + N`, N binomial, over blocks of m
  steps in which only what was there before is paid, on a grid and rounded up;
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

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    down,
    up,
)
from lastiterate._progress import track

RATES = np.geomspace(1e-3, 300.0, 160)  # the largest weight is 1
_TERMS = 4096
_LEVELS = 400
_UNLIKELY = 1e-15
_MEMORY = 60.0  # time constants; what is older is e^-60 of the whole
_BLOCKS = 128  # in a time constant, or in the run
_REMEMBERED = 12  # time constants, by the recursion
_CELLS = 32_768
_CUT = 1e-16
_FOLDS = 30.0  # e-folds
_NEVER = 1e-13  # the chance left after as many
_ROUNDING = 1e-12  # of the probabilities of one block


class Unpaid(NamedTuple):
    """Z is at most levels[i] with probability masses[i], except with probability `lost`."""

    levels: Array
    masses: Array
    lost: float


class Terms(NamedTuple):
    """Weights c^j, payments for g = 1, how many there are of each, and the sum of the too old.

    Where there are many they are grouped: each group has its largest weight and its least
    payment.
    """

    weights: Array
    payments: Array
    counts: Array
    rest: float


@lru_cache(maxsize=16)
def unpaid_law(
    *, gap: float, steps: int, probability: float, cap: float, payment: float = 0.0
) -> Unpaid:
    """A law that dominates that of min(Z, cap)."""
    listed = terms(gap, steps)
    top = min(float(listed.weights @ listed.counts), cap)
    if top == 0.0:
        return Unpaid(np.zeros(1), np.ones(1), 0.0)
    if 0.0 < gap < 0.5:
        return _by_recursion(gap, steps, probability, cap, payment, top)
    return _by_moments(listed, probability, cap, payment, top)


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
    payments = down(np.exp(2 * (edges[1:] - 1) * log_c), THOUSANDS_OF_ROUNDINGS)
    return Terms(weights, payments, np.diff(edges).astype(float), rest)


def peaks(listed: Terms, probability: float, payment: float, rates: Array) -> Array:
    """The largest Psi_k for each rate: at the end of a group, as it is linear within."""
    result = np.empty(rates.size)
    for i, rate in enumerate(rates):
        each = np.log1p(probability * np.expm1(rate * listed.weights))
        each = up(each, THOUSANDS_OF_ROUNDINGS)
        sums = np.cumsum(listed.counts * (each - rate * payment * listed.payments))
        result[i] = max(0.0, sums.max())
    return result


def energy_of_payments(gap: float, steps: int, payment: float) -> float:
    """The energy of the shifts, rounded up."""
    if not payment:
        return 0.0
    return up(payment**2 * sum_of_powers(2 * log_of(gap), steps), MILLIONS_OF_ROUNDINGS)


def _by_recursion(
    gap: float, steps: int, probability: float, cap: float, payment: float, top: float
) -> Unpaid:
    size = max(1, int(min(1.0 / gap, steps) / _BLOCKS))
    kept = min(math.ceil(steps / size), math.ceil(_REMEMBERED / (gap * size)))
    log_c = log_of(gap)
    decay = up(power(log_c, size), THOUSANDS_OF_ROUNDINGS)
    before = max(steps - kept * size, 0)
    most_older = _exceeded_never(gap, before, probability) if before else 0.0
    older = power(log_c, kept * size) * min(most_older, 1.0 / gap)
    paid = down(payment * sum_of_powers(2 * log_c, size), MILLIONS_OF_ROUNDINGS)
    counts = np.arange(size + 1)
    arrivals = scipy.stats.binom.pmf(counts, size, probability)
    common = np.flatnonzero(arrivals > _CUT)
    lost = kept * (size * _CUT + _ROUNDING) + (_NEVER if before else 0.0)
    reach = _end(gap, steps, probability, top) + float(common[-1]) + 1.0
    cells = max(1, int(_CELLS / reach))  # in one arrival
    length = math.ceil(reach * cells) + 1
    level = np.arange(length) / cells
    law = np.zeros(length)
    law[0] = 1.0
    most = min(math.ceil(min(cap * cells, length)), length - 1)
    for block in track("what earlier steps leave", range(kept - 1, -1, -1)):
        less = np.maximum(decay * level - paid * power(log_c, block * size), 0.0)
        place = np.ceil(down(less * cells, FEW_ROUNDINGS)).astype(np.int64)
        moved = np.bincount(place, weights=law, minlength=length)
        law = np.zeros(length)
        for count in common:
            shift = int(count) * cells
            law[shift:] += arrivals[count] * moved[: length - shift]
        law[most] += law[most + 1 :].sum()
        law[most + 1 :] = 0.0
    lost += abs(1.0 - float(law.sum()))
    ends = _ends(law)
    masses = np.diff(np.cumsum(law)[ends], prepend=0.0)
    levels = up(np.minimum(level[ends] + older, cap), THOUSANDS_OF_ROUNDINGS)
    return Unpaid(levels, np.maximum(masses, 0.0), lost + 1e-12)


def _ends(law: Array) -> NDArray[np.int64]:
    """Few cells, to which what lies between them is moved up."""
    used = np.flatnonzero(law > _UNLIKELY / law.size)
    first, last = int(used[0]), int(np.flatnonzero(law)[-1])
    return np.unique(np.append(np.linspace(first, used[-1], 2 * _LEVELS).astype(np.int64), last))


def _end(gap: float, steps: int, probability: float, top: float) -> float:
    """A distance that what remains exceeds with negligible probability, with or without shifts."""
    listed = terms(gap, steps, most=512)
    levels = (peaks(listed, probability, 0.0, RATES) + _FOLDS) / RATES
    return min(float(levels.min()) * 1.01, top)


def _exceeded_never(gap: float, steps: int, probability: float) -> float:
    """A sum of what arrives in so many steps that is exceeded with probability `_NEVER`."""
    listed = terms(gap, steps, most=512)
    return _end(gap, steps, probability, float(listed.weights @ listed.counts)) + listed.rest


def _by_moments(
    listed: Terms, probability: float, cap: float, payment: float, top: float
) -> Unpaid:
    largest = peaks(listed, probability, payment, RATES)
    coarse = np.geomspace(min(1e-6 * top, 1e-2), top, _LEVELS)
    exceeded = _tail(largest, coarse)
    low = coarse[exceeded >= 0.99][-1] if exceeded[0] >= 0.99 else 0.0
    high = min(1.1 * coarse[exceeded > _UNLIKELY][-1], top) if exceeded[0] > _UNLIKELY else top
    single = [1.0] if 0.0 < 1.0 < high else []
    levels = np.unique(np.concatenate([[0.0, top], single, np.linspace(low, high, _LEVELS)]))
    tail = _tail(largest, levels)
    tail[0] = min(tail[0], probability * float(listed.counts.sum()))  # that there is any at all
    tail = np.minimum.accumulate(np.minimum(tail, 1.0))
    tail[-1] = 0.0  # neither its largest value nor the cap is exceeded
    masses = -np.diff(tail, prepend=1.0)
    needed = masses > 0.0
    levels = up(np.minimum(levels + listed.rest, cap)[needed], THOUSANDS_OF_ROUNDINGS)
    return Unpaid(levels, masses[needed], 0.0)


def _tail(largest: Array, levels: Array) -> Array:
    """P(Z > level), at most."""
    logs = np.min(largest[:, None] - RATES[:, None] * levels, axis=0)
    return np.asarray(up(np.exp(np.minimum(logs, 0.0)), MILLIONS_OF_ROUNDINGS))
