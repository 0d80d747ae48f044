r"""What earlier random participations left behind: a law that dominates the true one.

:math:`Z = \sum_{j < J} c^j V_j`, V_j independent and 1 with probability p.  Chernoff's bound
:math:`P(Z > z) \le \min_\theta E e^{\theta Z} e^{-\theta z}` makes a tail function; a variable
with that tail, rounded up to levels, is larger in law than Z, which is all that is needed.
"""

import math

import numpy as np

from lastiterate._numerics.exact import Array

_TERMS = 4096
_LEVELS = 400
_UNLIKELY = 1e-15
_MEMORY = 60.0  # time constants; what is older is e^-60 of the whole


def leftover_law(*, gap: float, steps: int, probability: float, cap: float) -> tuple[Array, Array]:
    """Levels that min(Z, cap) is at most, and their probabilities."""
    weights, counts, rest = _terms(gap, steps)
    largest = float(weights @ counts)
    if largest == 0.0:
        return np.zeros(1), np.ones(1)
    top = min(largest, cap)
    mean = min(probability * largest, 0.5 * top)
    coarse = np.geomspace(max(mean, 1e-9 * top), top, _LEVELS)
    likely = coarse[_tail(weights, counts, probability, coarse) > _UNLIKELY]
    high = min(1.1 * likely[-1], top) if likely.size else top
    single = [1.0] if 0.0 < 1.0 < high else []
    levels = np.unique(np.concatenate([[0.0, top], single, np.linspace(mean, high, _LEVELS)]))
    tail = _tail(weights, counts, probability, levels)
    tail[0] = min(tail[0], probability * float(counts.sum()))  # a union bound on any at all
    tail = np.minimum.accumulate(np.minimum(tail, 1.0))
    tail[-1] = 0.0  # neither its largest value nor the cap is exceeded
    masses = -np.diff(tail, prepend=1.0)
    needed = masses > 0.0
    return np.minimum(levels + rest, cap)[needed] * (1.0 + 1e-12), masses[needed]


def _terms(gap: float, steps: int) -> tuple[Array, Array, float]:
    """Weights c^j, how many there are of each, and the sum of all that are too old to list.

    Where there are many they are grouped, each group at its largest weight.
    """
    if gap >= 1.0:
        return np.ones(1), np.array([float(min(steps, 1))]), 0.0
    if gap == 0.0:
        return np.ones(1), np.array([float(steps)]), 0.0
    log_c = math.log1p(-gap)
    last = min(steps, math.ceil(_MEMORY / gap))
    starts = np.unique(np.linspace(0, last, min(last, _TERMS) + 1).astype(np.int64))
    rest = math.exp(last * log_c) * min(float(steps - last), 1.0 / gap)
    return np.exp(starts[:-1] * log_c), np.diff(starts).astype(float), rest


def _tail(weights: Array, counts: Array, probability: float, levels: Array) -> Array:
    """P(Z > level), at most."""
    logs = np.zeros(levels.size)
    for rate in np.geomspace(1e-3, 300.0, 160):  # the largest weight is 1
        moment = float(counts @ np.log1p(probability * np.expm1(rate * weights)))
        logs = np.minimum(logs, moment * (1.0 + 1e-12) - rate * levels)
    return np.exp(logs) * (1.0 + 1e-9)
