"""Rows of features from the columns of a table, by its schema."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import BadCells, length_of
from lastiterate.tables.column_rules import WAYS, Categorical, ColumnRule, Intervals, rule_of

REST = "*"  # stands for every column that has no entry of its own


@dataclass(frozen=True)
class Encoder:
    """The rules by which columns become features, in order; all of them public."""

    rules: Mapping[str, ColumnRule]

    @classmethod
    def of(cls, schema: Mapping[str, Any], columns: Sequence[str]) -> Encoder:
        """The encoder of a table with these columns, all of which the schema must describe."""
        described = {str(name): rule_of(str(name), rule) for name, rule in schema.items()}
        rest = described.pop(REST, None)
        unknown = sorted(set(described) - set(columns))
        if unknown:
            must_be = "about columns of the table, without the target"
            found = f"more: {missing_columns_text(unknown, columns)}"
            raise InvalidParameter("schema", must_be=must_be, found=found)
        undescribed = [name for name in columns if name not in described]
        if undescribed and rest is None:
            must_be = f"about every column: {WAYS} for each"
            found = f"nothing about {', '.join(undescribed)}"
            raise InvalidParameter("schema", must_be=must_be, found=found)
        rules = {name: described.get(name, rest) for name in columns}
        encoder = cls({name: rule for name, rule in rules.items() if rule is not None})
        if encoder.width == 0:
            must_be = "about at least one column that is not dropped"
            raise InvalidParameter("schema", must_be=must_be, found="none")
        return encoder

    @cached_property
    def column_kinds(self) -> dict[str, str]:
        """The columns that are read, and the type of their cells, number or text."""
        return {name: rule.kind for name, rule in self.rules.items() if rule.kind is not None}

    @cached_property
    def names(self) -> list[str]:
        """The names of the features."""
        return [name for column, rule in self.rules.items() for name in rule.names(column)]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names)

    @cached_property
    def unbounded(self) -> list[str]:
        """The columns whose range is not known."""
        return [name for name, rule in self.rules.items() if math.isinf(rule.reach)]

    @cached_property
    def feature_bound(self) -> float:
        """The largest norm of a row; inf if a column is unscaled."""
        return math.sqrt(math.fsum(rule.reach for rule in self.rules.values()))

    def encode(self, table: Mapping[str, Any], out: NDArray[Any], *, before: int = 0) -> None:
        """Fill `out`, a row for each example; errors count rows from `before`."""
        out[:] = 0.0
        first = 0
        for name, rule in self.rules.items():
            width = len(rule.names(name))
            if rule.kind is not None:
                try:
                    rule.encode(table[name], out[:, first : first + width])
                except BadCells as bad:
                    raise bad_cells_error(name, rule.kind, bad.found(before)) from None
            first += width

    @cached_property
    def text_columns(self) -> dict[str, tuple[int, int]]:
        """The columns of declared values: their first feature, and the one after their last.

        Without those that have a baseline, which looks as undeclared values do.
        """
        found, first = {}, 0
        for name, rule in self.rules.items():
            after = first + len(rule.names(name))
            if rule.kind == "text" and after > first and self.baselines.get(name) is None:
                found[name] = (first, after)
            first = after
        return found

    @cached_property
    def baselines(self) -> dict[str, str | None]:
        """The baseline of each column coded one-hot; None where every value has a feature."""
        return {
            name: rule.baseline(name)
            for name, rule in self.rules.items()
            if isinstance(rule, (Categorical, Intervals))
        }

    @property
    def without_baseline(self) -> list[str]:
        """The columns coded one-hot in which every value has a feature."""
        return [name for name, baseline in self.baselines.items() if baseline is None]

    def unseen(self, rows: NDArray[Any]) -> list[str]:
        """The text columns in which no row has a declared value."""
        positions = self.text_columns.items()
        return [name for name, (first, after) in positions if not rows[:, first:after].any()]

    def rows(self, table: Mapping[str, Any], *, dtype: Any = np.float64) -> NDArray[Any]:
        """The features of a table, a row for each example."""
        absent = [name for name in self.column_kinds if name not in table]
        if absent:
            must_be = f"a table with columns {', '.join(self.column_kinds)}"
            found = missing_columns_text(absent, list(table))
            raise InvalidParameter("data", must_be=must_be, found=found)
        lengths = {length_of(table[name]) for name in self.column_kinds}
        if len(lengths) != 1:
            must_be = "a table with columns of the same length"
            raise InvalidParameter("data", must_be=must_be, found=f"{len(lengths)} lengths")
        out = np.empty((lengths.pop(), self.width), dtype=dtype)
        self.encode(table, out)
        return out


def missing_columns_text(absent: Sequence[str], there: Sequence[str]) -> str:
    """Text that names the missing columns of a table, and those that it has."""
    named = ", ".join(map(repr, absent))
    has = ", ".join(there) if there else "none"
    return f"the table has no column {named}; it has {has}"


def bad_cells_error(name: str, kind: str, found: str) -> InvalidParameter:
    """The error for a column with cells that cannot be used."""
    filled = '0, perhaps with "indicator": true' if kind == "number" else "[one of the values]"
    what = "a finite number" if kind == "number" else "text"
    must_be = f'{what} in every row, unless the schema has "missing": {filled}, or "drop"'
    return InvalidParameter(f"column {name!r}", must_be=must_be, found=found)
