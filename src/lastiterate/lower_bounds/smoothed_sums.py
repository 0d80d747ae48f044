r"""The law of a sum of draws under Gaussian noise, and what thresholds make of two of them.

The law of S + N(0, 1) is the Fourier series of its characteristic function over a period that
holds all of it.  As the Gaussian's decays like :math:`e^{-u^2/2}`, some hundred terms give it to
rounding, which `ERROR` covers.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array
from lastiterate.lower_bounds.geometric_draws import Draws
from lastiterate.lower_bounds.random_sums import ThresholdLowerProfile

ERROR = THOUSANDS_OF_ROUNDINGS  # of a probability

_BEYOND = 14.0  # standard deviations on either side of all means
_HIGHEST = 9.5  # e^(-u^2/2) beyond is below 1e-19
_LOST = 1e-15
_THRESHOLDS = 1_200
_FARTHEST = 500.0  # means that far away are told apart as well as any


def below(thresholds: Array, draws: Draws, factor: float, *, above_truth: bool) -> Array:
    """P(factor S + N(0, 1) <= t), where S is rounded down if the result is to be above the truth.

    So it is for a negative factor with S rounded up.  Within `ERROR`, either way.
    """
    if factor < 0.0:
        return 1.0 - below(-thresholds, draws, -factor, above_truth=not above_truth)
    if factor == 0.0:
        return np.asarray(ndtr(thresholds))
    most = factor * draws.most(_LOST)
    low, high = -_BEYOND, most + _BEYOND
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_HIGHEST / unit) + 1.0)
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
    """How large the sums may be, and the factors, made smaller together if those are too large.

    That is what more noise makes of the result.
    """
    most = max(one.most(_LOST) for one in draws)
    farthest = max(abs(factor) for factor in factors) * most
    smaller = min(1.0, _FARTHEST / farthest) if farthest > 0.0 else 1.0
    return most, (factors[0] * smaller, factors[1] * smaller)


def threshold_profile(draws: Draws, ours: float, theirs: float) -> ThresholdLowerProfile:
    """ours S + N(0, 1) against theirs S + N(0, 1), rounded towards less being told.

    `ours` is the larger.
    """
    most, (ours, theirs) = within_reach((draws,), (ours, theirs))
    low = min(theirs, 0.0) * most - 9.0
    high = min(max(ours, 0.0) * most + 9.0, max(theirs, 0.0) * most + 37.0)
    thresholds = np.linspace(low, high, _THRESHOLDS)
    below_ours = below(thresholds, draws, ours, above_truth=True)
    below_theirs = below(thresholds, draws, theirs, above_truth=False)
    above_theirs = ndtr(-thresholds) if theirs == 0.0 else 1.0 - below_theirs + ERROR
    false = np.concatenate([above_theirs, below_ours + ERROR])
    true = np.concatenate([1.0 - below_ours - ERROR, below_theirs - ERROR])
    return ThresholdLowerProfile(np.clip(false, 0.0, 1.0), np.clip(true, 0.0, 1.0))
