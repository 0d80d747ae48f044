"""Divergences of one hidden batch out of a few, by integrals over the noise of each step."""

import math

import numpy as np
from scipy.special import ndtr

_FARTHEST = 9.0


def _normal(points):
    """Points, and weights by the trapezoidal rule."""
    at = np.linspace(-_FARTHEST, _FARTHEST, points)
    return at, np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi) * (at[1] - at[0])


def call(ratios, share, thresholds, points=None):
    """E (p0 + p sum_t e^(r_t z_t - r_t^2/2) - K)_+: a closed form in z_1, sums in the others."""
    first, *others = ratios
    left, weights = np.full(1, 1.0 - share * len(ratios)), np.ones(1)
    at, own = _normal(points or (20_001 if len(others) == 1 else 901))
    for ratio in others:
        left = (left[:, None] + share * np.exp(ratio * at - ratio**2 / 2)).ravel()
        weights = (weights[:, None] * own).ravel()
    thresholds = np.asarray(thresholds, dtype=float)
    return np.array([float(weights @ _of_one(first, share, k - left)) for k in thresholds])


def _of_one(ratio, share, thresholds):
    """E (p e^(r z - r^2/2) - K)_+."""
    positive = np.maximum(thresholds, 1e-300)
    away = np.log(share / positive) / ratio
    above = share * ndtr(away + ratio / 2) - positive * ndtr(away - ratio / 2)
    return np.where(thresholds > 0.0, above, share - thresholds)


def deltas(ratios, share, epsilon):
    """The hockey-stick divergences with the example against without it, and the other way."""
    level = math.exp(epsilon)
    forwards, put = call(ratios, share, [level, 1.0 / level])
    return forwards, level * put + 1.0 - level


def two_epoch_deltas(ratio, share, epsilon):
    """The same for two epochs of two batches each."""
    at, own = _normal(101)
    grown = share * np.exp(ratio * at - ratio**2 / 2)
    values = (1.0 - 2.0 * share + grown[:, None] + grown).ravel()
    weights = (own[:, None] * own).ravel()
    level = math.exp(epsilon)
    forwards = call([ratio] * 2, share, level / values, points=901)
    puts = call([ratio] * 2, share, 1.0 / (level * values), points=901)
    backwards = level * values * puts + 1.0 - level * values
    return float(weights @ (values * forwards)), float(weights @ backwards)


def adaptive_deltas(shift, second_shift, share, epsilon):
    """Both divergences of two steps, of which the second knows the noise of the first.

    `shift` is that of the first step, and `second_shift` a function of the first noise.
    """
    at, own = _normal(901)
    shifts = second_shift(at)[:, None]
    ratios = 1.0 - 2.0 * share + share * np.exp(shift * at - shift**2 / 2)[:, None]
    ratios = ratios + share * np.exp(shifts * at - shifts**2 / 2)
    weights, level = own[:, None] * own, math.exp(epsilon)
    forwards = float((weights * np.maximum(ratios - level, 0.0)).sum())
    return forwards, float((weights * np.maximum(1.0 - level * ratios, 0.0)).sum())
