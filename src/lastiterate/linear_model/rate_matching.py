r"""A shift of the outputs after which mean probabilities match the shares of the classes.

Clipped residuals count a rare class for less, so that its probabilities come out too small.  After
training, the counts N of the classes and the sums P of the probabilities of all rows are published
with noise, and the outputs are shifted by :math:`\log N_k/P_k`.  Then the sums of the shifted model
are published, and the shift is corrected by how far the first one led (a secant).

One example adds to each of the three vectors nonnegative parts that add up to at most 1.  Such
vectors have norms of at most 1 and are at most :math:`\sqrt2` apart.  So the three together are
moved by :math:`\sqrt3`, or :math:`\sqrt6` if the example is another; the second sums look at what
was published before, as adaptive composition allows.  Parts are cut to multiples of
:math:`2^{-20}`, so sums are exact and a row adds its own parts alone, whatever the others are.

An example of an undeclared label counts alike for all classes, in counts and sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from lastiterate._numerics.arrays import Array
from lastiterate.other_releases import Release
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.norms import chunks
from lastiterate.train.predictions import linear_outputs
from lastiterate.train.release_noise import noisy

_UNIT = 2.0**-20
_LEAST_SHIFT, _LEAST_RATE = 0.2, 0.3  # below, noise could pass for it
_SURE = 2.0  # standard deviations of noise below which sums count as that many


def rate_shift(
    examples: Examples,
    coef: Array,
    intercept: Array,
    release: Release,
    source: Randomness,
    *,
    shares: Array | None = None,
) -> Array:
    """The shift of each output of the model; public `shares` of the classes replace counts."""
    classes = max(len(intercept), 2)
    many = len(examples)

    def published(total: Array) -> Array:
        found = noisy(total, release.noise_std, source, largest=2.0 * many)
        # All classes together are known to be as many as there are examples.
        found += (many - found.sum()) / classes
        return np.maximum(found, _SURE * release.noise_std)

    counts = published(_counts(examples, classes)) if shares is None else shares * many
    shift = np.zeros(classes)
    first = np.log(counts / published(_probability_sums(examples, coef, intercept, shift)))
    shift += first
    left = np.log(counts / published(_probability_sums(examples, coef, intercept, shift)))
    shift += left / _rate_of_change(first, left)
    return shift[1:] - shift[:1] if len(intercept) == 1 else shift - shift.mean()


def _rate_of_change(first: Array, left: Array) -> Array:
    """The part of the first shift that changed the sums, where it is long enough to tell."""
    moved = np.abs(first) > _LEAST_SHIFT
    return np.where(moved, np.clip(1.0 - left / np.where(moved, first, 1.0), _LEAST_RATE, 1.0), 1.0)


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
