"""The column to predict: one of declared labels, or a number in a declared range."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import BadCells, missing_in, read
from lastiterate.tables.column_rules import EMPTY, Categorical, Numeric


def check_is_column(target: str, names: Sequence[str], public: Container[str] = ()) -> None:
    """Raise `InvalidParameter` unless the target is a column.

    The error lists similar names and names that are `public`.  In a file without a header the
    first line is a row, so it lists no others.
    """
    if target in names:
        return
    similar = get_close_matches(target, names)
    shown = [name for name in names if name in similar or name in public]
    columns = f": {', '.join(shown)}" if len(shown) == len(names) else ""
    if shown and not columns:
        columns = f", such as {', '.join(shown)}"
    must_be = f"one of the {len(names)} names in the first line of the file, the header{columns}"
    if similar and len(shown) == len(names):
        must_be += f" (did you mean {similar[0]!r}?)"
    raise InvalidParameter("target", target, must_be=must_be)


@dataclass(frozen=True)
class LabelTarget:
    """A target of declared labels: the position of each label, -1 for undeclared ones."""

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
        """The position of each label; errors count rows from `before`."""
        try:
            cells = read(column)
            positions: NDArray[np.intp] = self.rule.positions(cells)
            empty = missing_in(cells, np.flatnonzero(positions < 0))
            if empty.size:
                raise BadCells(EMPTY, empty.tolist())
        except BadCells as bad:
            must_be = (
                'a label in every row: leave out rows without one, or set "missing" in the schema '
                "to the label of an empty cell"
            )
            found = bad.found(before)
            must_be = bad.remedy or must_be
            raise InvalidParameter(f"target {self.name!r}", must_be=must_be, found=found) from None
        return positions


@dataclass(frozen=True)
class NumberTarget:
    """A target of numbers; those outside the range count as its ends."""

    name: str
    rule: Numeric

    kind = "number"

    @property
    def range(self) -> tuple[float, float]:
        assert self.rule.range is not None
        return self.rule.range

    def encode(self, column: Any, *, before: int = 0) -> Array:
        """The numbers; errors count rows from `before`."""
        try:
            return self.rule.numbers(column)
        except BadCells as bad:
            must_be = (
                'a finite number in every row: leave out rows without one, or set "missing" in the '
                "schema to the number of an empty cell"
            )
            found = bad.found(before)
            raise InvalidParameter(f"target {self.name!r}", must_be=must_be, found=found) from None


Target = LabelTarget | NumberTarget
