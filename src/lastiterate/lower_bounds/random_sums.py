r"""The law of a sum of drawn terms, rounded towards less being told, in two ways.

`law_of_sum` puts the terms on a grid and so takes any number of them; what it rounds away it
rounds down.  `smoothed_lower_profile` is exact to rounding, but its cost grows with the sum: the
law of S + N(0, 1) is the Fourier series of a product of characteristic functions over a period
that holds all of it, and as the Gaussian's decays like :math:`e^{-u^2/2}`, some hundred terms
give it.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.fourier import fast_length
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, ulps
from lastiterate.profile.lower import LowerProfile

_CELLS_TO_A_TERM = 64
_MOST_CELLS = 1 << 17
_MOST_MEANS = 400

_BEYOND = 14.0  # standard deviations on either side of all means
_HIGHEST = 9.5  # e^(-u^2/2) beyond is below 1e-19
_ERROR = 1e-12
_THRESHOLDS = 4_000
_BLOCK = 2_000_000


def law_of_sum(terms: Array, probability: float) -> tuple[list[float], list[float]]:
    """Chances and values of the sum of those terms that are drawn, each with this probability.

    All rounded down: the terms to a grid, a sum that does not fit by wrapping around, and in the
    end sums to the least of a group.
    """
    if probability == 1.0:
        return [down(1.0, MILLIONS_OF_ROUNDINGS)], [down(math.fsum(terms), MILLIONS_OF_ROUNDINGS)]
    largest, total = float(terms.max()), float(terms.sum())
    spread = math.sqrt(probability * float(terms @ terms))
    most = min(total, probability * total + 12.0 * spread + 40.0 * largest)
    if not largest > 0.0:
        return [down(1.0, MILLIONS_OF_ROUNDINGS)], [0.0]
    width = largest / max(1, min(_CELLS_TO_A_TERM, int(_MOST_CELLS * largest / most)))
    sizes, counts = np.unique((terms / width).astype(np.int64), return_counts=True)
    cells = fast_length(int(most / width) + 2)
    angles = (-2j * math.pi / cells) * np.arange(cells // 2 + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [
            n * np.log1p(probability * np.expm1(angles * k))
            for k, n in zip(sizes, counts, strict=True)
        ]
    # Of the angles and logarithms, and hence of the transform.
    rounding = 4 * ulps(1) * (terms.size + 64.0) * math.pi * _CELLS_TO_A_TERM
    law = np.fft.irfft(np.nan_to_num(np.exp(sum(logs))), cells) - rounding
    likely = np.flatnonzero(law > 0.0)
    groups = np.array_split(likely, min(_MOST_MEANS, likely.size))
    return [float(law[g].sum()) for g in groups], [
        down(float(g[0]) * width, MILLIONS_OF_ROUNDINGS) for g in groups
    ]


@dataclass(frozen=True, repr=False)
class ThresholdLowerProfile(LowerProfile):
    """Tests of given false- and true-positive rates."""

    false: Array = field(compare=False)
    true: Array = field(compare=False)

    def tests(self) -> tuple[Array, Array]:
        return self.false, self.true


def smoothed_lower_profile(
    terms: Array, probability: float, *, one_of: int = 1
) -> ThresholdLowerProfile:
    """N(0, 1) against N(S, 1): S sums the drawn terms, of which none is negative.

    Each is drawn with this probability, independently; or, of every `one_of` that follow each
    other, at most one, each with this probability.  The likelihood ratio increases, so thresholds
    are the best tests.
    """
    low, high = -_BEYOND, float(terms.sum()) + _BEYOND
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_HIGHEST / unit) + 1.0)
    transform = np.exp(-(frequencies**2) / 2.0)
    transform = transform * _characteristic(frequencies, terms, probability, one_of)
    thresholds = np.linspace(low + 4.0, high, _THRESHOLDS)
    # The integral of the series from the lower end, where there is nothing.
    waves = np.exp(-1j * np.outer(thresholds, frequencies)) - np.exp(-1j * low * frequencies)
    series = waves @ (transform / (-1j * frequencies))
    below = np.clip(unit / math.pi * series.real + (thresholds - low) / (high - low), 0.0, 1.0)
    false = np.concatenate([ndtr(-thresholds), np.minimum(below + _ERROR, 1.0)])
    true = np.concatenate([np.maximum(1.0 - below - _ERROR, 0.0), ndtr(thresholds)])
    return ThresholdLowerProfile(false, true)


def _characteristic(frequencies: Array, terms: Array, probability: float, one_of: int) -> Array:
    """E e^{iuS}."""
    product = np.ones(frequencies.size, dtype=complex)
    rows = max(1, _BLOCK // (frequencies.size * one_of))
    for first in range(0, terms.size, rows * one_of):
        part = terms[first : first + rows * one_of]
        # Where the last epoch is cut short, the missing steps add nothing.
        part = np.append(part, np.zeros(-part.size % one_of)).reshape(-1, one_of)
        moved = np.exp(1j * frequencies[:, None, None] * part) - 1.0
        product *= np.prod(1.0 + probability * moved.sum(axis=2), axis=1)
    return product
