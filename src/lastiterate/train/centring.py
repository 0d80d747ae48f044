r"""Rows moved so that their mean is about 0, by a mean that is published with noise.

Noise is in proportion to the longest row.  Where rows have much in common, little of their length
tells them apart: around their mean m rows x have a mean square of :math:`E|x|^2 - |m|^2`.  With R',
its root times a reach (.8 for classes, 1.2 for numbers; not always, see `RowReach`), rows within R
count as

.. math:: \frac{R}{R'}\,\mathrm{cut}_{R'}(x - m),

where cut scales down to R' what is longer.  That is no longer than R, whatever m and R' are, so the
run and its guarantee do not depend on them, and the two compose as any two mechanisms do of which
the second may look at what the first published (Dong, Roth and Su 2022, Theorem 3.2).

What is published is the sum of :math:`(x/R, |x|^2/2R^2)`, with noise.  If two rows have lengths a
and b in units of R, their vectors are at most
:math:`(a + b)\sqrt{1 + (a - b)^2/4} \le (2 - t)\sqrt{1 + t^2/4} \le 2` apart, t being |a - b|: the
squared lengths come for nothing.  Left out, a row moves the sum by at most :math:`\sqrt{5/4}`.

The sum is exact, so that a row moves it by its own vector and by no rounding of others.  In units
of :math:`2^{-31}` coordinates are whole numbers, rounded towards 0, and the half square is that of
the row so rounded.  It is off by less than a unit, so rows are first made shorter by a few units:
then the distances above hold for what is added.

No row is ever changed: x counts as :math:`\alpha x - \beta m`, and the trainer knows both factors
of every row, so that sparse rows stay sparse and files stay files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, down, ulps, up
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.train.noise import Randomness, noisy
from lastiterate.train.rows import (
    PROVED_ROUNDING,
    SHORTEST,
    Rows,
    chunks,
    factors_of,
    norm_factors,
    own_copy,
    owners,
    squared_norms,
    squares_and_products,
    with_huge_rows_scaled,
    without_duplicates,
)

MEAN_DIGEST, MEAN_BOUND = "sha256 of the mean", "bound"
_LEAST_BOUND = 0.05  # R' in units of R, however short rows are around their mean
_LONGEST_MEAN = 0.999  # in units of R
_SURE_STDS = 2.0  # standard deviations of what noise adds to it
_BITS = 31  # of a row's coordinates; sums of 2^20 rows are then exact in floating point
_UNIT = 2.0**-_BITS
_MOST_ROWS = 2**32
_LITTLE_NOISE = 0.02  # of the mean, in units of R


@dataclass(frozen=True)
class RowReach:
    """How far from their mean rows are left as they are.

    A shorter bound saves noise in proportion.  Where it would save little, being `whole` of R or
    more, and noise is small, as that of the published mean tells, it is R: what noise costs falls
    with the number of rows, and what cut rows cost does not.
    """

    times: float  # the root mean square
    whole: float = 1.0

    def bound(self, spread: float, noise: float) -> float:
        """R' in units of R, from the mean square around a mean with noise of this length."""
        found = min(self.times * math.sqrt(spread), 1.0)
        return 1.0 if found >= self.whole and noise <= _LITTLE_NOISE else found


# Chosen on validation splits.  Rows cut short lose less to a classifier, which needs their
# direction, than to a regressor, whose targets go with their length.
REACH, REGRESSION_REACH = RowReach(0.8), RowReach(1.2, whole=0.8)


@dataclass(frozen=True, eq=False)
class Centre:
    """A published mean of rows, and the bound on rows around it."""

    mean: Array
    bound: float

    def outputs(self, coef: Array) -> Array:
        """Outputs at the mean of a model with these coefficients; rounded alike everywhere."""
        return np.array([math.fsum(row * self.mean) for row in coef])

    @np.errstate(all="ignore")
    def factors_and_reaches(
        self, rows: Rows, *, bound: float, rounding: float = PROVED_ROUNDING
    ) -> tuple[Array, Array]:
        """The factors that bring each row within `bound`, and then within that of the centre."""
        factors, reaches = np.ones(rows.shape[0]), np.ones(rows.shape[0])
        for part, some in chunks(rows):
            some = without_duplicates(some)
            squares, along = squares_and_products(some, self.mean)
            factors[part] = within = factors_of(some, squares, bound, rounding)
            huge = np.flatnonzero(within < SHORTEST)
            if huge.size:
                within, exact = within.copy(), some[huge].astype(np.float64)
                scaled, within[huge] = with_huge_rows_scaled(
                    exact, within[huge], bound=bound, rounding=rounding
                )
                squares[huge], along[huge] = squares_and_products(scaled, self.mean)
            reaches[part] = self._reaches(
                squares * within**2, along * within, bound, rows.shape[1], rounding
            )
        return factors, reaches

    def _reaches(
        self, squares: Array, along: Array, bound: float, width: int, rounding: float
    ) -> Array:
        own = float(self.mean @ self.mean)
        # Each of the three is a sum of as many products as there are columns.
        margin = 4.0 * ulps(width + 8)
        slack = margin * (bound * bound + 2.0 * bound * math.sqrt(own) + own)
        norms = np.sqrt(np.maximum(squares - 2.0 * along + own, 0.0) + slack)
        norms = up(norms, ulps(8)) + (margin + rounding) * bound
        found = down(self.bound / np.maximum(norms, self.bound), ulps(8))
        return np.where(norms > self.bound, found, 1.0)


@np.errstate(all="ignore")
def sum_in_units(
    rows: Rows, *, bound: float, silent: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The exact sum that is published, before noise; sums of parts add up to that of all.

    Silenced rows count as 0.
    """
    total = np.zeros(rows.shape[1] + 1, dtype=np.int64)
    for part, some, factors in _bounded_chunks(rows, bound):
        if silent is not None:
            factors = np.where(silent[part], 0.0, factors)
        total += _chunk_in_units(some, factors / bound)
    return total


def centre_of_sum(
    total: NDArray[np.int64],
    release: Release,
    source: Randomness,
    *,
    examples: int,
    bound: float,
    reach: RowReach = REACH,
) -> Centre:
    """The centre published from the exact sum, after the noise of the release is added."""
    if not examples <= _MOST_ROWS:
        raise InvalidParameter("X", must_be=f"of at most {_MOST_ROWS} rows", found=f"{examples}")
    published = noisy(
        _UNIT * total.astype(np.float64), release.noise_std, source, largest=2.0 * examples
    )
    return centre_of(published, release, examples=examples, bound=bound, reach=reach)


def _chunk_in_units(rows: Rows, factors: Array) -> NDArray[np.int64]:
    """The sum of these rows, which are used up, and half that of their squares, in whole units."""
    width = rows.shape[1]
    # The half square is rounded as often as there are columns, and then to a unit.
    shorter = down(1.0, 8.0 * _UNIT + ulps(width + 8))
    factors = shorter / _UNIT * factors
    if isinstance(rows, np.ndarray):
        whole = np.multiply(rows, factors[:, np.newaxis], out=rows)
        np.trunc(whole, out=whole)
        squares, sums = squared_norms(whole), np.ones(rows.shape[0]) @ whole
    else:
        rows.data = whole = np.trunc(rows.data * factors[owners(rows)])
        squares = squared_norms(rows)
        sums = np.asarray(np.bincount(rows.indices, whole, width), dtype=np.float64)
    halves = np.trunc(_UNIT / 2.0 * squares)
    return np.append(sums, halves.sum()).astype(np.int64)


def centre_of(
    published: Array, release: Release, *, examples: int, bound: float, reach: RowReach = REACH
) -> Centre:
    """The centre computed from the published sum and from public quantities."""
    mean, noise = published[:-1] / examples, release.noise_std / examples
    length = float(mean @ mean)
    # Noise makes the mean longer by that much, on average.
    added = mean.size * noise * noise
    spread = 2.0 * float(published[-1]) / examples - (length - added)
    spread = max(spread, _unseen_spread(noise, mean), _LEAST_BOUND**2)
    # A mean of rows within the bound is within it; beyond, factors that are rounded down could
    # move rows away from it.
    within = min(1.0, _LONGEST_MEAN / math.sqrt(length)) if length > 0.0 else 1.0
    return Centre(mean * (within * bound), reach.bound(spread, math.sqrt(added)) * bound)


def lost_distance(
    centre: Centre, release: Release, *, examples: int, bound: float, reach: RowReach = REACH
) -> float:
    """How far from 0 the mean of centred rows is likely to be, in units of the bound on rows.

    0 where more than noise has set the bound around the mean, since rows differ more than it hides;
    and where the mean is so short that rows need not have much in common.
    """
    noise, mean = release.noise_std / examples, centre.mean / bound
    unseen = _unseen_spread(noise, mean)
    hidden = reach.times * math.sqrt(unseen) * bound
    apart = centre.bound > up(min(hidden, bound), THOUSANDS_OF_ROUNDINGS)
    if apart or mean @ mean <= _SURE_STDS * unseen:
        return 0.0
    return noise * math.sqrt(centre.mean.size) * bound / centre.bound


def _unseen_spread(noise: float, mean: Array) -> float:
    """The largest mean square around the mean that the noise of both may hide, in units of R."""
    unsure = 2.0 * noise * math.sqrt(1.0 + float(mean @ mean))
    return max(_SURE_STDS * unsure, _SURE_STDS**2 * mean.size * noise * noise)


def as_published(centre: Centre) -> dict[str, Any]:
    """The certificate's record of a centre: the digest of its mean, and its bound."""
    mean = np.ascontiguousarray(centre.mean, dtype="<f8")
    return {MEAN_DIGEST: sha256(mean.tobytes()).hexdigest(), MEAN_BOUND: centre.bound}


def _bounded_chunks(rows: Rows, bound: float) -> Iterator[tuple[slice, Rows, Array]]:
    """Chunks of rows as they count in training, and the factors that bring them within a bound."""
    for part, shared in chunks(rows):
        # A copy, which nobody else can change meanwhile.
        some = own_copy(shared, None).astype(np.float64, copy=False)
        yield part, *with_huge_rows_scaled(some, norm_factors(some, bound), bound=bound)
