r"""A shift of the outputs after which mean probabilities match the shares of the classes.

Clipped residuals count a rare class for less, so that its probabilities come out too small.  After
training, the counts N of the classes and the sums P of the probabilities of all rows are published
with noise, and the outputs are shifted by :math:`\log N_k/P_k`.  Then the sums of the shifted model
are published, and the shift is corrected by how far the first one led (a secant).

The secant divides by the rate at which :math:`\log P_k` moved with the shift.  Were the rate read
off two noisy sums, noise would pass for a rate, and a small rate makes a large step.  So it is
weighed against 1, the rate of rare classes, as the mean of a normal posterior: with the first shift
d, and v the variance of the noise on the logarithm of the ratio of the two sums, it is measured
with variance :math:`v/d^2`, and expected to be 1 give or take t.  All of this follows from what is
published, and costs nothing.

One example adds to each of the three vectors nonnegative parts that add up to at most 1.  Such
vectors have norms of at most 1 and are at most :math:`\sqrt2` apart.  So the three together are
moved by :math:`\sqrt3`, or :math:`\sqrt6` if the example is another; the second sums look at what
was published before, as adaptive composition allows.  Parts are cut to multiples of
:math:`2^{-20}`, so sums are exact and a row adds its own parts alone, whatever the others are.

An example of an undeclared label counts alike for all classes, in counts and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from lastiterate._numerics.rounding import Array
from lastiterate.other_releases import Release
from lastiterate.train.data import Examples, linear_outputs
from lastiterate.train.noise import Randomness, noisy
from lastiterate.train.rows import chunks

_UNIT = 2.0**-20
_EXPECTED, _LEAST_RATE = 0.2, 0.3  # how far rates are expected to be from 1, and their least
_FLOOR = 2.0  # standard deviations of noise below which sums count as that many
_FEW = 5.0  # standard deviations of noise below which counts and sums are said to be few


@dataclass(frozen=True)
class MatchedRates:
    """A shift that matches rates, and the classes whose published numbers noise dominates."""

    shift: Array
    few: dict[int, int]  # by the position of the class, the least of its count and last sum


def matched_rates(
    examples: Examples,
    coef: Array,
    intercept: Array,
    release: Release,
    source: Randomness,
    *,
    shares: Array | None = None,
) -> MatchedRates:
    """The shift of each output of the model; public `shares` of the classes replace counts."""
    classes = max(len(intercept), 2)
    many, std = len(examples), release.noise_std

    def published(total: Array) -> Array:
        found = noisy(total, std, source, largest=2.0 * many)
        # All classes together are known to be as many as there are examples.
        return np.asarray(found + (many - found.sum()) / classes)

    def sums(shift: Array) -> Array:
        return published(_probability_sums(examples, coef, intercept, shift))

    def floored(found: Array) -> Array:
        return np.maximum(found, _FLOOR * std)

    counts = published(_counts(examples, classes)) if shares is None else shares * many
    aim = floored(counts) if shares is None else counts
    before = floored(sums(np.zeros(classes)))
    first = np.log(aim / before)
    found = sums(first)
    after = floored(found)
    left = np.log(aim / after)
    shift = first + left / _rate_of_change(first, left, _log_variance(std, before, after))
    least = np.minimum(counts, found)
    few = {k: max(round(float(least[k])), 0) for k in np.flatnonzero(least < _FEW * std).tolist()}
    return MatchedRates(shift[1:] - shift[:1] if len(intercept) == 1 else shift - shift.mean(), few)


def _log_variance(std: float, before: Array, after: Array) -> Array:
    """The variance that noise of this size gives the logarithm of the ratio of two sums."""
    return np.asarray((std / before) ** 2 + (std / after) ** 2)


def _rate_of_change(first: Array, left: Array, variance: Array) -> Array:
    """The part of the first shift that changed the sums, as far as noise lets it be known."""
    belief = _EXPECTED * _EXPECTED
    rate = 1.0 - left * first * belief / (first * first * belief + variance)
    return np.asarray(np.clip(rate, _LEAST_RATE, 1.0))


def _counts(examples: Examples, classes: int) -> Array:
    return _summed(examples, classes, lambda part, _: np.eye(classes)[examples.targets[part]])


def _probability_sums(examples: Examples, coef: Array, intercept: Array, shift: Array) -> Array:
    def probabilities(part: slice, rows: object) -> Array:
        del part
        outputs = linear_outputs(
            rows, coef, intercept, bound=examples.feature_bound, centre=examples.centre
        )
        if outputs.shape[1] == 1:
            outputs = np.column_stack([np.zeros(len(outputs)), outputs])
        return np.asarray(softmax(outputs + shift, axis=1))

    return _summed(examples, shift.size, probabilities)


def _summed(examples: Examples, classes: int, parts_of: Callable[[slice, object], Array]) -> Array:
    """The exact sum over all examples of their parts, cut to whole units."""
    total = np.zeros(classes)
    for part, rows in chunks(examples.rows):
        parts = np.array(parts_of(part, rows))
        if examples.silent is not None:
            parts[examples.silent[part]] = 1.0 / classes
        total += np.floor(parts / _UNIT).sum(axis=0)
    return total * _UNIT
