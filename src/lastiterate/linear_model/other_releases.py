"""Other releases beside a model's parameters: statistics with noise, each charged for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.linear_model.outliers import counted, refuse_long_rows, warn_of_outliers
from lastiterate.linear_model.undeclared_values import (
    TextColumns,
    counted_undeclared,
    warn_of_undeclared,
)
from lastiterate.other_releases import MEAN, OUTLIERS, UNDECLARED, Release, published_record
from lastiterate.train.centring import as_published, centre_of_sum, lost_distance
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.shards import AnyExamples


@dataclass
class OtherReleases:
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
