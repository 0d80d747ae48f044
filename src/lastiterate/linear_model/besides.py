"""What a model publishes beside its parameters: statistics with noise, each charged for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.linear_model.outliers import counted, refuse_long_rows, warn_of_outliers
from lastiterate.linear_model.undeclared_values import (
    TextColumns,
    counted_undeclared,
    warn_of_undeclared,
)
from lastiterate.releases import MEAN, OUTLIERS, UNDECLARED, Release
from lastiterate.train.centring import as_published, lost_distance, published_centre
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness


@dataclass
class Besides:
    """Releases that were charged for, and what was published by them so far."""

    releases: tuple[Release, ...]
    source: Randomness
    counts: dict[str, int] = field(default_factory=dict)
    undeclared: dict[str, int] = field(default_factory=dict)
    lost: float = 0.0  # by how much rows are likely to be off the centre
    _published: dict[str, Any] = field(default_factory=dict)

    def centred(self, examples: Examples) -> Examples:
        """The examples, around their published mean where one is to be published."""
        release = self._of(MEAN)
        if release is None:
            return examples
        centre = published_centre(
            examples.rows,
            release,
            self.source,
            bound=examples.feature_bound,
            silent=examples.silent,
        )
        self._published[MEAN] = as_published(centre)
        self.lost = lost_distance(
            centre, release, examples=len(examples), bound=examples.feature_bound
        )
        return replace(examples, centre=centre)

    def count(self, examples: Examples, outside: NDArray[np.bool_], *, refuse: bool) -> None:
        """Rows and targets far from their bounds; if there are too many, perhaps refuse all."""
        release = self._of(OUTLIERS)
        if release is not None:
            self.counts = counted(examples, outside, release, self.source)
            self._published[OUTLIERS] = self.counts
            if refuse:
                refuse_long_rows(self.counts, release, len(examples))

    def count_undeclared(self, examples: Examples, columns: TextColumns) -> None:
        """Rows that have none of the values that were declared for a column."""
        release = self._of(UNDECLARED)
        if release is not None:
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
        """What a certificate states."""
        return [one.as_record() | {"published": self._published[one.kind]} for one in self.releases]

    def _of(self, kind: str) -> Release | None:
        return next((one for one in self.releases if one.kind == kind), None)
