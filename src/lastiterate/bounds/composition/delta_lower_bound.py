"""A quick lower bound on the delta of composed sampled steps, by which bounds can be skipped.

No statistic of all results distinguishes two data sets better than the results do.  This statistic
is the sum over the steps of rough log-likelihood ratios, in whole cells and modulo their number.
Its law is a power of a transform, and every threshold gives a lower bound on delta.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array, ulps

_CELLS = 1 << 14
_RESULTS = 2000  # cells of the result of one step
_LARGEST_RESULT = 9.0  # standard deviations
_REACH = 20.0  # standard deviations of the sum that have cells of their own
_MOST_STEPS = 10**8  # beyond which rounding is larger than any delta
_LARGEST_RATIO, _LARGEST_EPSILON = 30.0, 700.0


def composed_delta_lower_bound(
    probability: float, ratio: float, steps: int, epsilon: float, *, mirrored: bool
) -> float:
    """A lower bound on delta at `epsilon` after `steps` steps; 0 if nothing is known.

    Each step has the mean `ratio` with this probability on one data set, else 0, and noise 1.  On
    the other data set the mean is 0, or if `mirrored` -`ratio` with this probability.
    """
    if not (
        0.0 < probability <= 1.0 and 0.0 < ratio < _LARGEST_RATIO and 1 <= steps <= _MOST_STEPS
    ):
        return 0.0
    first, second = _tails(probability, ratio, steps, mirrored)
    if not epsilon < _LARGEST_EPSILON:
        return 0.0
    # The transform is off by a rounding a step, and sums of its cells by as many.
    off = ulps(64.0 * (steps + _CELLS))
    forwards = first - off - math.exp(epsilon) * (second + off)
    backwards = 1.0 - second - off - math.exp(epsilon) * (1.0 - first + off)
    return max(float(forwards.max()), float(backwards.max()), 0.0)


@lru_cache(maxsize=16)
def _tails(probability: float, ratio: float, steps: int, mirrored: bool) -> tuple[Array, Array]:
    """The probabilities of exceeding each threshold, on one data set and on the other."""
    ends = np.linspace(-_LARGEST_RESULT - mirrored * ratio, ratio + _LARGEST_RESULT, _RESULTS)
    logs = _log_ratio(0.5 * (ends[1:] + ends[:-1]), probability, ratio)
    absent, present = _masses(ends), _masses(ends - ratio)
    one = (1.0 - probability) * absent + probability * present
    other = absent
    if mirrored:
        logs = logs - _log_ratio(-0.5 * (ends[1:] + ends[:-1]), probability, ratio)
        other = (1.0 - probability) * absent + probability * _masses(ends + ratio)
    spread = math.sqrt(float(one @ np.square(logs - one @ logs)) + 1e-300)
    cell = max(spread / 3.0, _REACH * spread * math.sqrt(steps) / _CELLS)
    cells = np.floor(logs / cell)
    cells -= cells.min()
    middle = steps * 0.5 * float((one + other) @ cells)
    turn = (math.floor(middle) + np.arange(_CELLS) - _CELLS // 2) % _CELLS
    tails = []
    for masses in (one, other):
        law = np.bincount((cells % _CELLS).astype(np.int64), masses, minlength=_CELLS)
        summed = np.fft.irfft(np.fft.rfft(law) ** steps, _CELLS)[turn]
        tails.append(np.cumsum(summed[::-1])[::-1])
    return tails[0], tails[1]


def _masses(ends: Array) -> Array:
    """The standard normal probabilities between these ends; the outer two include the tails."""
    below = ndtr(ends)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


def _log_ratio(results: Array, probability: float, ratio: float) -> Array:
    """The log-likelihood ratio of a step that may contain the example to one that does not."""
    present = ratio * results - ratio * ratio / 2.0 + math.log(probability)
    absent = math.log1p(-probability) if probability < 1.0 else -math.inf
    return np.asarray(np.logaddexp(present, absent))
