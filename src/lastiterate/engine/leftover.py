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
_TAIL = 1e-12


def leftover_law(*, gap: float, steps: int, probability: float, cap: float) -> tuple[Array, Array]:
    """Levels, the last of them certain not to be exceeded or `inf`, and their probabilities."""
    weights, counts = _terms(gap, steps)
    total = float(weights @ counts)  # the largest Z can be
    top = min(total, cap)
    if top == 0.0:
        return np.zeros(1), np.ones(1)
    mean = probability * total
    # P(Z > 0) <= p J: a single participation is all that most runs see where p J is small.
    levels = np.concatenate([[0.0], np.linspace(min(mean, 0.5 * top), top, _LEVELS)])
    tail = np.minimum(_tail(weights, counts, probability, levels), 1.0)
    tail[0] = min(tail[0], probability * float(counts.sum()), 1.0)
    tail = np.minimum.accumulate(tail)
    tail[-1] = 0.0  # Z never exceeds its largest value, nor the cap
    masses = -np.diff(tail, prepend=1.0)
    needed = masses > 0.0
    return levels[needed] * (1.0 + 1e-12), masses[needed]


def _terms(gap: float, steps: int) -> tuple[Array, Array]:
    """Weights c^j, grouped where there are many: each group at its largest weight."""
    if steps <= _TERMS:
        return np.exp(np.arange(steps) * math.log1p(-gap)) if gap < 1.0 else _first(steps), np.ones(
            steps
        )
    if gap == 0.0:
        return np.ones(1), np.array([float(steps)])
    # Beyond 60 time constants what is left of all terms together is e^-60 / (1 - c).
    last = min(steps, math.ceil(60.0 / gap))
    starts = np.unique(np.linspace(0, last, _TERMS + 1).astype(np.int64))
    weights = np.exp(starts[:-1] * math.log1p(-gap))
    counts = np.diff(starts).astype(float)
    rest = math.exp(last * math.log1p(-gap)) * min((steps - last) * 1.0, 1.0 / gap)
    # The rest is taken as present: it is one more term, always in.
    return np.append(weights, rest), np.append(counts, 1.0)


def _first(steps: int) -> Array:
    weights = np.zeros(steps)
    weights[:1] = 1.0
    return weights


def _tail(weights: Array, counts: Array, probability: float, levels: Array) -> Array:
    logs = np.zeros(levels.size)
    for rate in np.geomspace(1e-3, 300.0, 160) / max(float(weights.max()), 1e-300):
        exponents = rate * weights
        if exponents.max() > 600.0:
            break
        moment = float(counts @ np.log1p(probability * np.expm1(exponents)))
        logs = np.minimum(logs, moment * (1.0 + 1e-12) - rate * levels)
    return np.exp(logs) * (1.0 + 1e-12)
