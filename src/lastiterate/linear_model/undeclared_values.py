"""Cells that have none of the values declared for their column: counted with noise, and said.

A value that is spelt otherwise in the schema than in the table makes a feature that is always 0.
To refuse it would tell of the rows; so of each column it is published how many rows have none of
its values, with noise that the guarantee includes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lastiterate._warning import warn
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.outliers import OutlierWarning, about, surely_more
from lastiterate.other_releases import Release, noise_of_counts
from lastiterate.train.noise import Randomness
from lastiterate.train.norms import chunks
from lastiterate.train.rows import Rows

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
