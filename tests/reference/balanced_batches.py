"""Divergences of hidden sets of steps out of four, by integrals over the noise of each step."""

import math
from itertools import combinations

import numpy as np
from scipy.special import ndtr

_STEPS = 4


def _normal(points, farthest=8.5):
    at = np.linspace(-farthest, farthest, points)
    return at, np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi) * (at[1] - at[0])


def deltas(ratio, often, epsilon, points=101):
    """Both divergences if an example is in `often` of four steps, all sets equally likely.

    The likelihood ratio is a + b e^(r z - r^2/2) in the last z: a closed form in that one.
    """
    at, own = _normal(points)
    grown = np.exp(ratio * at - ratio**2 / 2)
    axes = (grown[:, None, None], grown[:, None], grown)
    weights = (own[:, None, None] * own[:, None] * own).ravel()
    each = 1.0 / math.comb(_STEPS, often)

    def symmetric(size):
        sets = combinations(axes, size)
        summed = sum((math.prod(chosen) for chosen in sets), np.zeros((points,) * 3))
        return each * summed.ravel()

    rest, slope = symmetric(often), symmetric(often - 1)
    level = math.exp(epsilon)
    calls = [_call(ratio, slope, k - rest) for k in (level, 1.0 / level)]
    forwards, call = (float(weights @ one) for one in calls)
    mean = float(weights @ (rest + slope))
    total = float(weights.sum())
    return forwards, level * (call - mean + total / level)


def _call(ratio, slope, thresholds):
    """E (b e^(r z - r^2/2) - K)_+."""
    positive = np.maximum(thresholds, 1e-300)
    away = (np.log(slope) - np.log(positive)) / ratio
    above = slope * ndtr(away + ratio / 2) - positive * ndtr(away - ratio / 2)
    return np.where(thresholds > 0.0, above, slope - thresholds)


def adaptive_deltas(shift_of, often, epsilon, points=37):
    """Both divergences where the shift of step t is a function of t and of earlier noise."""
    at, own = _normal(points, 6.5)
    noise = np.meshgrid(*[at] * _STEPS, indexing="ij")
    weights = math.prod(np.meshgrid(*[own] * _STEPS, indexing="ij"))
    shifts = [shift_of(t, noise[:t]) for t in range(_STEPS)]
    ratios = [np.exp(a * z - a * a / 2) for a, z in zip(shifts, noise, strict=True)]
    sets = list(combinations(ratios, often))
    mixed = sum(math.prod(chosen) for chosen in sets) / len(sets)
    level = math.exp(epsilon)
    forwards = float((weights * np.maximum(mixed - level, 0.0)).sum())
    return forwards, float((weights * np.maximum(1.0 - level * mixed, 0.0)).sum())
