r"""The law of a sum of drawn terms, rounded towards less being told, in two ways.

`law_of_sum` puts the terms on a grid and so takes any number of them; what it rounds away it
rounds down.  `smoothed_lower_profile` is exact to rounding: the law of S + N(0, 1) is the Fourier
series of its characteristic function over a period that holds all of it, but for a chance of
`_LOST`, and as the Gaussian's decays like :math:`e^{-u^2/2}`, some hundred terms give it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lastiterate._numerics.powers import fast_length
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, ulps
from lastiterate.profile.lower import LowerProfile

_CELLS_TO_A_TERM = 64
_MOST_CELLS = 1 << 17
_MOST_MEANS = 400

_BEYOND = 14.0  # standard deviations on either side of all means
_HIGHEST = 9.5  # e^(-u^2/2) beyond is below 1e-19
_ERROR = 1e-12
_LOST = 1e-15
_FARTHEST = 500.0  # means that far away are told apart as well as any
_THRESHOLDS = 4_000
_BLOCK = 2_000_000

Moves = tuple[float, float]
"""Factors of a sum in our world and in theirs."""
Characteristic = Callable[[Array], NDArray[np.complex128]]


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
    most: float, characteristic: Characteristic, moves: Moves = (1.0, 0.0)
) -> ThresholdLowerProfile:
    """ours S + N(0, 1) against theirs S + N(0, 1), for a sum S of the law with this E e^{iuS}.

    S is at least 0, and at most `most` but for a chance of `_LOST`; `ours` is the larger.
    """
    farthest = max(map(abs, moves)) * most
    if farthest > _FARTHEST:  # as more noise would have it
        moves = (moves[0] * _FARTHEST / farthest, moves[1] * _FARTHEST / farthest)
    ours, theirs = moves
    low = min(theirs, 0.0) * most - _BEYOND + 4.0
    thresholds = np.linspace(low, max(ours * most, 0.0) + _BEYOND, _THRESHOLDS)
    below_ours = _below(thresholds, most, characteristic, ours)
    below_theirs = _below(thresholds, most, characteristic, theirs)
    above_theirs = ndtr(-thresholds) if theirs == 0.0 else 1.0 - below_theirs + _ERROR
    false = np.concatenate([above_theirs, below_ours + _ERROR])
    true = np.concatenate([1.0 - below_ours - _ERROR, below_theirs - _ERROR])
    return ThresholdLowerProfile(np.clip(false, 0.0, 1.0), np.clip(true, 0.0, 1.0))


def _below(thresholds: Array, most: float, characteristic: Characteristic, factor: float) -> Array:
    """P(factor S + N(0, 1) <= t), within `_ERROR`."""
    if factor < 0.0:
        return 1.0 - _below(-thresholds, most, characteristic, -factor)
    if factor == 0.0:
        return np.asarray(ndtr(thresholds))
    low, high = -_BEYOND, factor * most + _BEYOND
    unit = 2.0 * math.pi / (high - low)
    frequencies = unit * np.arange(1.0, math.ceil(_HIGHEST / unit) + 1.0)
    transform = np.exp(-(frequencies**2) / 2.0) * characteristic(factor * frequencies)
    inside = np.clip(thresholds, low, high)
    # The integral of the series from the lower end, where there is nothing.
    waves = np.exp(-1j * np.outer(inside, frequencies)) - np.exp(-1j * low * frequencies)
    series = waves @ (transform / (-1j * frequencies))
    below = unit / math.pi * series.real + (inside - low) / (high - low)
    return np.asarray(np.clip(below, 0.0, 1.0))


def most_of_sum(terms: Array, probability: float) -> float:
    """A limit of the sum of drawn terms that it exceeds with a chance of `_LOST`, at most.

    Each term is drawn with this probability.  By Bernstein's inequality: draws are independent, or
    exclude each other.
    """
    log, largest = -math.log(_LOST), float(terms.max(initial=0.0))
    variance = probability * float(terms @ terms)
    off = log * largest / 3.0
    off += math.sqrt(off * off + 2.0 * log * variance)
    return min(float(terms.sum()), probability * float(terms.sum()) + off)


def drawn_profile(
    terms: Array, probability: float, moves: Moves = (1.0, 0.0), *, one_of: int = 1
) -> ThresholdLowerProfile:
    """`smoothed_lower_profile` of the sum of the drawn terms, of which none is negative.

    Each is drawn with this probability, independently; or, of every `one_of` that follow each
    other, at most one, each with this probability.
    """

    def characteristic(frequencies: Array) -> NDArray[np.complex128]:
        return _characteristic(frequencies, terms, probability, one_of)

    return smoothed_lower_profile(most_of_sum(terms, probability), characteristic, moves)


def mixed_means_profile(weights: Array, sums: Array, moves: Moves) -> ThresholdLowerProfile:
    """ours S + N(0, 1) against theirs S + N(0, 1), where S is one of few sums, none negative.

    Weights may be rounded down: what is missing tells nothing.
    """
    ours, theirs = moves
    most = float(sums.max(initial=0.0))
    highest = max(max(ours, 0.0) * most + 9.0, max(theirs, 0.0) * most + 37.0)
    thresholds = np.linspace(min(theirs, 0.0) * most - 9.0, highest, _THRESHOLDS // 3)
    missing = max(0.0, 1.0 - float(weights.sum()))

    def below(factor: float, sign: float) -> Array:
        parts = np.array_split(thresholds, 1 + sums.size // 256)
        return np.concatenate(
            [ndtr(sign * (part[:, None] - factor * sums)) @ weights for part in parts]
        )

    false = np.concatenate([below(theirs, -1.0), below(ours, 1.0)]) + missing
    true = np.concatenate([below(ours, -1.0), below(theirs, 1.0)])
    return ThresholdLowerProfile(np.minimum(false, 1.0), true)


def _characteristic(
    frequencies: Array, terms: Array, probability: float, one_of: int
) -> NDArray[np.complex128]:
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
