r"""The last iterate of linear maps: N(0, 1) against a mixture of N(S, 1), any number of steps.

With :math:`w_k = \prod_{j>k} c_j` the two means are apart by :math:`S = \sum_k w_k s_k V_k`, in
units of the common standard deviation.  The likelihood ratio increases, so thresholds are the best
tests.  Where batches are drawn anew, S is a sum of independent terms, and the law of S + N(0, 1) is
the Fourier series of a product of characteristic functions over a period that holds all of it: as
the Gaussian's decays like :math:`e^{-u^2/2}`, some hundred terms give it to rounding.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.audit.participation import (
    Always,
    AtSteps,
    Participation,
    Sampled,
    ShuffledEachEpoch,
    ShuffledOnce,
)
from lastiterate.errors import InvalidType
from lastiterate.profile.lower import LowerProfile, MeansLowerProfile

_BEYOND = 14.0  # standard deviations on either side of all means
_HIGHEST = 9.5  # e^(-u^2/2) beyond is below 1e-19
_ERROR = 1e-12
_THRESHOLDS = 4_000
_BLOCK = 2_000_000


@dataclass(frozen=True, repr=False)
class ThresholdLowerProfile(LowerProfile):
    """Tests of given false- and true-positive rates."""

    false: Array = field(compare=False)
    true: Array = field(compare=False)

    def tests(self) -> tuple[Array, Array]:
        return self.false, self.true


def autoregression_lower_profile(
    slopes: Array, shifts: Array, noise_stds: Array, release_noise_std: float, rule: Participation
) -> LowerProfile:
    """What an instance with these slopes tells, rounded down."""
    weights = np.append(np.cumprod(np.abs(slopes[:0:-1]))[::-1], 1.0)
    variance = float(((weights * noise_stds) ** 2).sum()) + release_noise_std**2
    arrivals = down(weights * shifts / math.sqrt(variance), MILLIONS_OF_ROUNDINGS)
    if isinstance(rule, (Always, AtSteps)):
        return MeansLowerProfile([1.0], [float(arrivals @ rule.expected(arrivals.size))])
    if isinstance(rule, ShuffledOnce):
        sums = [float(arrivals[place :: rule.length].sum()) for place in range(rule.length)]
        chances = down(rule.start, MILLIONS_OF_ROUNDINGS)
        return MeansLowerProfile(chances.tolist(), [*sums, 0.0])
    return _of_independent_terms(arrivals, rule)


def _of_independent_terms(arrivals: Array, rule: Participation) -> ThresholdLowerProfile:
    low, high = -_BEYOND, float(arrivals.sum()) + _BEYOND
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_HIGHEST / unit) + 1.0)
    transform = np.exp(-(frequencies**2) / 2.0) * _characteristic(frequencies, arrivals, rule)
    thresholds = np.linspace(low + 4.0, high, _THRESHOLDS)
    # The integral of the series from the lower end, where there is nothing.
    waves = np.exp(-1j * np.outer(thresholds, frequencies)) - np.exp(-1j * low * frequencies)
    series = waves @ (transform / (-1j * frequencies))
    below = np.clip(unit / math.pi * series.real + (thresholds - low) / (high - low), 0.0, 1.0)
    false = np.concatenate([ndtr(-thresholds), np.minimum(below + _ERROR, 1.0)])
    true = np.concatenate([np.maximum(1.0 - below - _ERROR, 0.0), ndtr(thresholds)])
    return ThresholdLowerProfile(false, true)


def _characteristic(frequencies: Array, arrivals: Array, rule: Participation) -> Array:
    """E e^{iuS}."""
    if isinstance(rule, Sampled):
        length, each = 1, rule.probability
    elif isinstance(rule, ShuffledEachEpoch):
        length, each = rule.length, (1.0 - rule.left_out) / rule.length
    else:
        raise InvalidType("participation", rule, must_be="one of those of lastiterate.audit")
    product = np.ones(frequencies.size, dtype=complex)
    rows = max(1, _BLOCK // (frequencies.size * length))
    for first in range(0, arrivals.size, rows * length):
        part = arrivals[first : first + rows * length]
        # Where the last epoch is cut short, the missing steps add nothing.
        part = np.append(part, np.zeros(-part.size % length)).reshape(-1, length)
        moved = np.exp(1j * frequencies[:, None, None] * part) - 1.0
        product *= np.prod(1.0 + each * moved.sum(axis=2), axis=1)
    return product
