"""Statistics published with noise beside a model's parameters; the guarantee includes each of them.

- the mean of the rows, around which they are centred;
- counts of rows and targets far from their bounds.  Whether most rows are scaled down to a tenth
  decides what a model can learn, and depends on the data;
- for each column of text, the count of rows that have none of its declared values.  A value that
  is misspelt in the schema makes a feature that is always 0.

Warnings and refusals follow from the published numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._warning import warn
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.inputs import SCALED
from lastiterate.other_releases import (
    MEAN,
    OUTLIER_COUNTS,
    OUTLIERS,
    UNDECLARED,
    Release,
    noise_of_counts,
    published_record,
)
from lastiterate.train.centring import as_published, centre_of_sum, lost_distance
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.norms import chunks
from lastiterate.train.rows import Rows
from lastiterate.train.shards import AnyExamples

_TOO_NOISY = 8.0
_LONG, _SHORT, _TARGETS = OUTLIER_COUNTS
# From which share on, and by how many standard deviations of the noise, it is said.
_SAID = {_LONG: (0.5, 2.0), _SHORT: (0.5, 2.0), _TARGETS: (0.05, 4.0)}
_LENGTH = "more than ten times as long as feature_bound"
_ADVICE = {
    _LONG: f"are {_LENGTH} and count as scaled down to it, so that little but their direction is "
    "left: map columns to [-1, 1] by ranges that are publicly known (in a schema, or "
    "PrivateScaler), or, if they lie around 0, raise feature_bound",
    _SHORT: "are shorter than a tenth of feature_bound, so that noise drowns them: lower "
    "feature_bound, or map columns to [-1, 1] by ranges that are publicly known (in a schema, or "
    "PrivateScaler)",
    _TARGETS: "have a target outside what was declared, which counts as its end, or a label that "
    "was not declared, which counts for nothing: compare the spelling of the labels that were "
    "declared (capitals, endings, blanks), or declare the labels, or the range, of the target as "
    "they are publicly known",
}


class OutlierWarning(UserWarning):
    """Many examples are far from the bounds that they were given."""


def counted(
    examples: AnyExamples, outside: NDArray[np.bool_] | int, release: Release, source: Randomness
) -> dict[str, int]:
    """How many there are of each kind, with the noise of the release, to the nearest whole."""
    exact = np.array([*examples.far_rows(), np.sum(outside)], dtype=np.float64)
    noisy = exact + release.noise_std * source.release_normal((3,))
    return dict(zip(OUTLIER_COUNTS, np.rint(noisy).astype(int).tolist(), strict=True))


def warn_of_outliers(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone: of each kind that surely is too much."""
    for name in counts:
        if _is_said(name, counts, release, examples):
            share = about(counts[name], release.noise_std, examples)
            warn(
                f"{share} of the examples {_ADVICE[name]}",
                OutlierWarning,
            )


def refuse_long_rows(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone, where nobody has said how long rows may be."""
    if _is_said(_LONG, counts, release, examples):
        share = about(counts[_LONG], release.noise_std, examples)
        raise InvalidParameter(
            "feature_bound",
            must_be=f"set for such rows: {SCALED}",
            found=f"{share} of the rows {_LENGTH}, 1 by default (the count was taken with noise, "
            f"and spent a mu of {release.mu:.2g})",
        )


def _is_said(name: str, counts: dict[str, int], release: Release, examples: int) -> bool:
    return surely_more(counts[name], *_SAID[name], release.noise_std, examples)


def surely_more(count: int, share: float, sure: float, noise_std: float, examples: int) -> bool:
    """Than this share, by so many standard deviations of the noise."""
    # With more noise, that alone would set it off now and then.
    return noise_std <= examples / _TOO_NOISY and count - sure * noise_std > share * examples


def about(count: int, noise_std: float, examples: int) -> str:
    """Text that states a noisy count and its noise as shares of the examples."""
    share, spread = (_percent(part / examples) for part in (count, noise_std))
    return f"about {share} (a noisy count, give or take {spread})"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"


TextColumns = tuple[tuple[str, int, int], ...]

# From which share on, and by how many standard deviations of the noise, it is said.
_SHARE, _SURE = 0.1, 4.0


def check_text_columns(columns: TextColumns, features: int) -> None:
    """That there are such features."""
    for name, first, after in columns:
        if after > features:
            must_be = f"of the {features} features that rows have"
            raise InvalidParameter(f"text_columns[{name!r}]", (first, after), must_be=must_be)


def counted_undeclared(
    rows: Rows, columns: TextColumns, release: Release, source: Randomness
) -> dict[str, int]:
    """How many rows have none of a column's values, with noise, to the nearest whole."""
    exact = np.zeros(len(columns))
    for _, some in chunks(rows):
        exact += [_without_any(some, first, after) for _, first, after in columns]
    noise = _in_rows(release, len(columns)) * source.release_normal((len(columns),))
    counts = np.rint(exact + noise).astype(int).tolist()
    return dict(zip((name for name, _, _ in columns), counts, strict=True))


def warn_of_undeclared(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone: of each column in which there surely are too many."""
    noise_std = _in_rows(release, len(counts))
    for name, count in counts.items():
        if surely_more(count, _SHARE, _SURE, noise_std, examples):
            warn(
                f"{about(count, noise_std, examples)} of the rows have none of the values that "
                f"were declared for the column {name!r}, and all zeros in their place: see "
                "whether values are spelt otherwise there (capitals, endings, blanks), or declare "
                "those that are missing",
                OutlierWarning,
            )


def _in_rows(release: Release, columns: int) -> float:
    return noise_of_counts(release.kind, release.noise_std, columns)


def _without_any(rows: Rows, first: int, after: int) -> int:
    part: NDArray[np.bool_] = rows[:, first:after] != 0
    has_one = np.asarray(part.sum(axis=1)).ravel() > 0
    return int(has_one.size - has_one.sum())


@dataclass
class PublishedStatistics:
    """Releases that were charged for, and what was published by them so far."""

    releases: tuple[Release, ...]
    source: Randomness
    counts: dict[str, int] = field(default_factory=dict)
    undeclared: dict[str, int] = field(default_factory=dict)
    lost: float = 0.0  # by how much rows are likely to be off the centre
    _published: dict[str, Any] = field(default_factory=dict)

    def centred(self, examples: AnyExamples) -> AnyExamples:
        """The examples, around their published mean where one is to be published."""
        release = self._of(MEAN)
        if release is None:
            return examples
        centre = centre_of_sum(
            examples.in_units(),
            release,
            self.source,
            examples=len(examples),
            bound=examples.feature_bound,
        )
        self._published[MEAN] = as_published(centre)
        self.lost = lost_distance(
            centre, release, examples=len(examples), bound=examples.feature_bound
        )
        return examples.around(centre)

    def count(
        self, examples: AnyExamples, outside: NDArray[np.bool_] | int, *, refuse: bool
    ) -> None:
        """Rows and targets far from their bounds; if there are too many, perhaps refuse all."""
        release = self._of(OUTLIERS)
        if release is not None:
            self.counts = counted(examples, outside, release, self.source)
            self._published[OUTLIERS] = self.counts
            if refuse:
                refuse_long_rows(self.counts, release, len(examples))

    def count_undeclared(self, examples: AnyExamples, columns: TextColumns) -> None:
        """Rows that have none of the values that were declared for a column."""
        release = self._of(UNDECLARED)
        if release is not None:
            assert isinstance(examples, Examples)  # what lies elsewhere has no such columns
            self.undeclared = counted_undeclared(examples.rows, columns, release, self.source)
            self._published[UNDECLARED] = self.undeclared

    def warn(self, examples: int) -> None:
        """By what was published alone."""
        release = self._of(OUTLIERS)
        if release is not None:
            warn_of_outliers(self.counts, release, examples)
        release = self._of(UNDECLARED)
        if release is not None:
            warn_of_undeclared(self.undeclared, release, examples)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The certificate's records of the other releases, with what was published."""
        return [published_record(one, self._published[one.kind]) for one in self.releases]

    def _of(self, kind: str) -> Release | None:
        return next((one for one in self.releases if one.kind == kind), None)
