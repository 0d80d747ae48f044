r"""Statistics published with noise beside a model; the guarantee includes each of them.

- the mean of the rows, around which they are centred;
- counts of rows and targets far from their bounds.  Whether most rows are scaled down to a tenth
  decides what a model can learn, and depends on the data;
- for each column of text, the count of rows that have none of its declared values.  A value that
  is misspelt in the schema makes a feature that is always 0.

Warnings and refusals follow from the published numbers alone.

**Rate matching** shifts the outputs until mean probabilities match the shares of the classes.

Clipped residuals count a rare class for less, so that its probabilities come out too small.
After training, the counts N of the classes and the sums P of the probabilities of all rows are
published with noise, and the outputs are shifted by :math:`\log N_k/P_k`.  Then the sums of the
shifted model are published, and the shift is corrected by how far the first one led (a secant).

The secant divides by the rate at which :math:`\log P_k` moved with the shift.  Were the rate read
off two noisy sums, noise would pass for a rate, and a small rate makes a large step.  So it is
weighed against 1, the rate of rare classes, as the mean of a normal posterior: with the first
shift d, and v the variance of the noise on the logarithm of the ratio of the two sums, it is
measured with variance :math:`v/d^2`, and expected to be 1 give or take t.  All of this follows
from what is published, and costs nothing.

One example adds to each of the three vectors nonnegative parts that add up to at most 1.  Such
vectors have norms of at most 1 and are at most :math:`\sqrt2` apart.  So the three together are
moved by :math:`\sqrt3`, or :math:`\sqrt6` if the example is another; the second sums look at what
was published before, as adaptive composition allows.  Parts are cut to multiples of
:math:`2^{-20}`, so sums are exact and a row adds its own parts alone, whatever the others are.

An example of an undeclared label counts alike for all classes, in counts and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, warn
from lastiterate.linear_model.fit_warnings import warn_of_few_to_match
from lastiterate.linear_model.inputs import SCALED
from lastiterate.linear_model.intervals import published_estimate
from lastiterate.other_releases import (
    INTERVALS,
    MEAN,
    OUTLIER_COUNTS,
    OUTLIERS,
    RATES,
    UNDECLARED,
    Release,
    noise_of_counts,
    published_record,
)
from lastiterate.train.centring import REACH, RowReach, as_published, centre_of_sum, lost_distance
from lastiterate.train.data import AnyExamples, Examples, interval_digest, linear_outputs
from lastiterate.train.noise import Randomness, noisy
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import Rows, chunks

TextColumns = tuple[tuple[str, int, int], ...]
PUBLISHED_KINDS = (MEAN, OUTLIERS, UNDECLARED, RATES, INTERVALS)
_LEAST_EXAMPLES_PER_STD = 8.0
_LONG, _SHORT, _TARGETS = OUTLIER_COUNTS

# The share, and the number of standard deviations of the noise above it, from which on to warn.
_THRESHOLDS = {_LONG: (0.5, 2.0), _SHORT: (0.5, 2.0), _TARGETS: (0.05, 4.0)}

_TEN_TIMES_AS_LONG = "more than ten times as long as the feature bound"

_ADVICE = {
    _LONG: f"are {_TEN_TIMES_AS_LONG} and are scaled down to it, so little but their direction is "
    "left: map columns to [-1, 1] by public ranges (a schema has them), or, if rows are centred "
    "around 0, raise the feature bound",
    _SHORT: "are shorter than a tenth of the feature bound, so noise dominates them: lower the "
    "bound, or map columns to [-1, 1] by public ranges (a schema has them)",
    _TARGETS: "have a target outside the declared range, which counts as its end, or an undeclared "
    "label, whose gradient is 0: check the spelling of the declared labels (capitals, endings, "
    "blanks), or declare the publicly known labels, or range, of the target",
}

_UNDECLARED_THRESHOLD = 0.1, 4.0  # of the same, for rows that have none of the declared values
_PART_UNIT = 2.0**-20

# How far rates are expected to be from 1, and their least.
_EXPECTED_DEVIATION, _LEAST_RATE = 0.2, 0.3

_FLOOR_STDS = 2.0  # standard deviations of noise below which sums count as that many
_FEW_STDS = 5.0  # standard deviations of noise below which counts and sums are said to be few


class OutlierWarning(UserWarning):
    """Many examples are far from the declared bounds, or have undeclared values.

    Examples
    --------
    >>> import warnings
    >>> from lastiterate.linear_model import OutlierWarning
    >>> warnings.simplefilter("ignore", OutlierWarning)
    """


def noisy_outlier_counts(
    examples: AnyExamples, outside: NDArray[np.bool_] | int, release: Release, source: Randomness
) -> dict[str, int]:
    """The count of outliers of each kind, with the noise of the release, rounded."""
    exact = np.array([*examples.far_rows(), np.sum(outside)], dtype=np.float64)
    published = noisy(exact, release.noise_std, source, largest=2.0 * len(examples))
    return dict(zip(OUTLIER_COUNTS, np.rint(published).astype(int).tolist(), strict=True))


def warn_of_outliers(counts: dict[str, int], release: Release, examples: int) -> None:
    """Warn of each kind of outlier whose published count is surely too large."""
    for name, count in counts.items():
        if _exceeds_threshold(name, counts, release, examples):
            share = share_text(count, release.noise_std, examples)
            warn(f"{share} of the examples {_ADVICE[name]}", OutlierWarning)


def refuse_long_rows(counts: dict[str, int], release: Release, examples: int) -> None:
    """Raise if the published count of long rows is surely too large; for an unset bound."""
    if _exceeds_threshold(_LONG, counts, release, examples):
        share = share_text(counts[_LONG], release.noise_std, examples)
        raise InvalidParameter(
            "feature_bound",
            must_be=f"set for such rows: {SCALED}",
            found=f"{share} of the rows {_TEN_TIMES_AS_LONG}, 1 by default (the noisy count has "
            f"cost a mu of {release.mu:.2g})",
        )


def _exceeds_threshold(name: str, counts: dict[str, int], release: Release, examples: int) -> bool:
    return surely_exceeds(counts[name], *_THRESHOLDS[name], release.noise_std, examples)


def surely_exceeds(count: int, share: float, sure: float, noise_std: float, examples: int) -> bool:
    """Whether a noisy count exceeds a share by `sure` standard deviations of its noise."""
    # With more noise, noise alone would exceed it now and then.
    return (
        noise_std <= examples / _LEAST_EXAMPLES_PER_STD
        and count - sure * noise_std > share * examples
    )


def share_text(count: int, noise_std: float, examples: int) -> str:
    """Text that states a noisy count and its noise as shares of the examples."""
    share, spread = (_percent(part / examples) for part in (count, noise_std))
    return f"about {share} (a noisy count, give or take {spread})"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"


def check_text_columns(columns: TextColumns, features: int) -> None:
    """Raise if a text column has features that rows do not have."""
    for name, first, after in columns:
        if after > features:
            must_be = f"of the {features} features that rows have"
            raise InvalidParameter(f"text_columns[{name!r}]", (first, after), must_be=must_be)


def noisy_undeclared_counts(
    rows: Rows, columns: TextColumns, release: Release, source: Randomness
) -> dict[str, int]:
    """The noisy count, for each text column, of rows that have none of its values."""
    exact = np.zeros(len(columns))
    for _, some in chunks(rows):
        exact += [_count_without_any(some, first, after) for _, first, after in columns]
    noise_std = _noise_per_count(release, len(columns))
    published = noisy(exact, noise_std, source, largest=2.0 * rows.shape[0])
    counts = np.rint(published).astype(int).tolist()
    return dict(zip((name for name, _, _ in columns), counts, strict=True))


def warn_of_undeclared(counts: dict[str, int], release: Release, examples: int) -> None:
    """Warn of each column whose published count of undeclared values is surely too large."""
    noise_std = _noise_per_count(release, len(counts))
    for name, count in counts.items():
        if surely_exceeds(count, *_UNDECLARED_THRESHOLD, noise_std, examples):
            warn(
                f"{share_text(count, noise_std, examples)} of the rows have none of the values "
                f"declared for the column {name!r}, and features that are all 0: check the "
                "spelling of the declared values (capitals, endings, blanks), declare those that "
                'are not yet, or, if cells are empty, name a value for them, "missing", or declare '
                'empty as one: "values": [.., ""], "missing": ""',
                OutlierWarning,
            )


def _noise_per_count(release: Release, columns: int) -> float:
    return noise_of_counts(release.kind, release.noise_std, columns)


def _count_without_any(rows: Rows, first: int, after: int) -> int:
    part: NDArray[np.bool_] = rows[:, first:after] != 0
    has_one = np.asarray(part.sum(axis=1)).ravel() > 0
    return int(has_one.size - has_one.sum())


@dataclass
class PublishedStatistics:
    """The statistics that a fit publishes, and their published values so far."""

    releases: tuple[Release, ...]
    source: Randomness
    reach: RowReach = REACH  # of rows around their mean
    counts: dict[str, int] = field(default_factory=dict)
    undeclared: dict[str, int] = field(default_factory=dict)
    lost: float = 0.0  # likely distance of rows from the published centre
    flat: list[int] = field(default_factory=list)  # parameters whose curvature noise may hide
    few: dict[int, int] = field(default_factory=dict)  # noisy counts of classes that noise hides
    _published: dict[str, Any] = field(default_factory=dict)

    def centred(self, examples: AnyExamples) -> AnyExamples:
        """The examples, centred around their published mean if a mean is published."""
        release = self._release(MEAN)
        if release is None:
            return examples
        centre = centre_of_sum(
            examples.in_units(),
            release,
            self.source,
            examples=len(examples),
            bound=examples.feature_bound,
            reach=self.reach,
        )
        self._published[MEAN] = as_published(centre)
        self.lost = lost_distance(
            centre,
            release,
            examples=len(examples),
            bound=examples.feature_bound,
            reach=self.reach,
        )
        return examples.around(centre)

    def count(
        self, examples: AnyExamples, outside: NDArray[np.bool_] | int, *, refuse: bool
    ) -> None:
        """Count rows and targets far from their bounds; `refuse` raises if rows are too long."""
        release = self._release(OUTLIERS)
        if release is not None:
            self.counts = noisy_outlier_counts(examples, outside, release, self.source)
            self._published[OUTLIERS] = self.counts
            if refuse:
                refuse_long_rows(self.counts, release, len(examples))

    def count_undeclared(self, examples: AnyExamples, columns: TextColumns) -> None:
        """Count rows that have none of the declared values of a text column."""
        release = self._release(UNDECLARED)
        if release is not None:
            assert isinstance(examples, Examples)  # rows on a cluster have no text columns
            self.undeclared = noisy_undeclared_counts(examples.rows, columns, release, self.source)
            self._published[UNDECLARED] = self.undeclared

    def match_rates(
        self, examples: AnyExamples, coef: Array, intercept: Array, shares: Array | None
    ) -> Array | None:
        """The shift that matches mean probabilities to shares of classes; None if not asked for."""
        release = self._release(RATES)
        if release is None:
            return None
        assert isinstance(examples, Examples)
        found = matched_rates(examples, coef, intercept, release, self.source, shares=shares)
        self._published[RATES] = found.shift.tolist()
        self.few = found.few
        return found.shift

    def measure_intervals(
        self,
        examples: AnyExamples,
        objective: Objective,
        parameters: Array,
        l2: float,
        units: tuple[float, float],
    ) -> tuple[Array, Array] | None:
        """The optimum near the parameters, and the covariance of its error; None if not asked."""
        release = self._release(INTERVALS)
        if release is None:
            return None
        assert isinstance(examples, Examples)
        estimate, covariance, self.flat = published_estimate(
            examples, objective, parameters, l2, release, self.source
        )
        estimate, covariance = units[0] * estimate, units[0] ** 2 * covariance
        if examples.intercept:
            estimate[-1] += units[1]
        found = estimate, covariance
        self._published[INTERVALS] = interval_digest(*found)
        return found

    def warn(self, examples: int) -> None:
        """Warn, by the published counts alone."""
        release = self._release(OUTLIERS)
        if release is not None:
            warn_of_outliers(self.counts, release, examples)
        release = self._release(UNDECLARED)
        if release is not None:
            warn_of_undeclared(self.undeclared, release, examples)

    def warn_of_rates(self, classes: Sequence[Any]) -> None:
        """Warn of classes too few for their rates to be matched, by the published counts alone."""
        release = self._release(RATES)
        if release is not None:
            warn_of_few_to_match(self.few, classes, release.noise_std)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The certificate's records of these statistics, with the published values."""
        return [published_record(one, self._published[one.kind]) for one in self.releases]

    def _release(self, kind: str) -> Release | None:
        return next((one for one in self.releases if one.kind == kind), None)


# Rate matching.


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
    shares: Array | None,
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
        return np.maximum(found, _FLOOR_STDS * std)

    counts = published(_class_counts(examples, classes)) if shares is None else shares * many
    aim = floored(counts) if shares is None else counts
    before = floored(sums(np.zeros(classes)))
    first = np.log(aim / before)
    found = sums(first)
    after = floored(found)
    left = np.log(aim / after)
    variance = (std / before) ** 2 + (std / after) ** 2  # of the logarithm of their ratio
    shift = first + left / _rate_of_change(first, left, variance)
    least = np.minimum(counts, found)
    few = {
        k: max(round(float(least[k])), 0) for k in np.flatnonzero(least < _FEW_STDS * std).tolist()
    }
    return MatchedRates(shift[1:] - shift[:1] if len(intercept) == 1 else shift - shift.mean(), few)


def _rate_of_change(first: Array, left: Array, variance: Array) -> Array:
    """The part of the first shift that changed the sums, as far as noise lets it be known."""
    belief = _EXPECTED_DEVIATION * _EXPECTED_DEVIATION
    rate = 1.0 - left * first * belief / (first * first * belief + variance)
    return np.asarray(np.clip(rate, _LEAST_RATE, 1.0))


def _class_counts(examples: Examples, classes: int) -> Array:
    return _exact_sum(examples, classes, lambda part, _: np.eye(classes)[examples.targets[part]])


def _probability_sums(examples: Examples, coef: Array, intercept: Array, shift: Array) -> Array:
    def probabilities(part: slice, rows: object) -> Array:
        del part
        outputs = linear_outputs(
            rows, coef, intercept, bound=examples.feature_bound, centre=examples.centre
        )
        if outputs.shape[1] == 1:
            outputs = np.column_stack([np.zeros(len(outputs)), outputs])
        return np.asarray(softmax(outputs + shift, axis=1))

    return _exact_sum(examples, shift.size, probabilities)


def _exact_sum(
    examples: Examples, classes: int, parts_of: Callable[[slice, object], Array]
) -> Array:
    """The exact sum over all examples of their parts, cut to whole units."""
    total = np.zeros(classes)
    for part, rows in chunks(examples.rows):
        parts = np.array(parts_of(part, rows))
        if examples.silent is not None:
            parts[examples.silent[part]] = 1.0 / classes
        total += np.floor(parts / _PART_UNIT).sum(axis=0)
    return total * _PART_UNIT
