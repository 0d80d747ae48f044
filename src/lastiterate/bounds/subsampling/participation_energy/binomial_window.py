"""How many of some steps an example takes part in: a window of the binomial law."""

import math
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up

_FOLDS = 50.0  # what is farther out is rarer than e^-50


class Counts(NamedTuple):
    """Consecutive counts, and their probabilities as logarithms.

    What is below them is counted as the first; more than the last has the probability `lost`.
    """

    values: Array
    logs: Array
    lost: float


def counts(steps: int, probability: float) -> Counts:
    """The numbers of participations that are not next to impossible, with log probabilities.

    Each probability is the one before times a ratio, so that large factorials do not cost digits.
    """
    mean = steps * probability
    spread = math.sqrt(2.0 * _FOLDS * mean) + _FOLDS
    first, last = max(0, math.floor(mean - spread)), min(steps, math.ceil(mean + spread))
    if probability >= 1.0:
        return Counts(np.array([float(steps)]), np.zeros(1), 0.0)
    values = np.arange(first, last + 1, dtype=np.float64)
    odds = probability / (1.0 - probability)
    ratios = np.log((steps - values[:-1]) / (values[:-1] + 1.0) * odds)
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    logs -= logs.max()
    logs -= math.log(math.fsum(np.exp(logs)))
    kept = (logs > -_FOLDS) | (values < mean)
    values, logs = values[kept], logs[kept]
    few = logs > -_FOLDS
    start = min(int(np.argmax(few)), values.size - 1)
    below = math.fsum(np.exp(logs[:start]))
    values, logs = values[start:], logs[start:].copy()
    logs[0] = math.log(math.exp(logs[0]) + below)
    top = float(values[-1])
    lost = 0.0
    if top < steps:
        # From here on each is less than half of the one before, or the window ends far out.
        ratio = (steps - top) / (top + 1.0) * odds
        lost = up(math.exp(-_FOLDS) / max(1.0 - ratio, 1e-3), MILLIONS_OF_ROUNDINGS)
    return Counts(values, logs + MILLIONS_OF_ROUNDINGS, lost)
