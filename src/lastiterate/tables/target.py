"""The column to predict: one of declared labels, or a number in a declared range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import BadCells, missing_in
from lastiterate.tables.column_rules import Categorical, Numeric


@dataclass(frozen=True)
class LabelTarget:
    """The place of each label among the declared ones; -1 for others, which teach nothing."""

    name: str
    rule: Categorical

    kind = "text"

    def __post_init__(self) -> None:
        if len(self.rule.values) < 2 or "" in self.rule.values:
            must_be = (
                "at least two labels, none of them empty; to tell one value from all others, add a "
                "column of yes and no to the table"
            )
            raise InvalidParameter("classes", list(self.rule.values), must_be=must_be)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.rule.values

    def encode(self, column: Any, *, before: int = 0) -> NDArray[np.intp]:
        """Errors count rows from `before`."""
        positions: NDArray[np.intp] = self.rule.positions(column)
        empty = missing_in(column, np.flatnonzero(positions < 0))
        if empty.size:
            bad = BadCells("an empty cell", empty.tolist())
            must_be = (
                'a label in every row: leave out rows without one, or name in the schema, "missing"'
                ": .., the label that an empty cell stands for"
            )
            found = bad.found(before)
            raise InvalidParameter(f"target {self.name!r}", must_be=must_be, found=found)
        return positions


@dataclass(frozen=True)
class NumberTarget:
    """Numbers; those outside the range count as its ends."""

    name: str
    rule: Numeric

    kind = "number"

    @property
    def range(self) -> tuple[float, float]:
        assert self.rule.range is not None
        return self.rule.range

    def encode(self, column: Any, *, before: int = 0) -> Array:
        """Errors count rows from `before`."""
        try:
            return self.rule.numbers(column)
        except BadCells as bad:
            must_be = (
                'a finite number in every row: leave out rows without one, or name in the schema, "'
                'missing": .., what an empty cell stands for'
            )
            found = bad.found(before)
            raise InvalidParameter(f"target {self.name!r}", must_be=must_be, found=found) from None


Target = LabelTarget | NumberTarget
