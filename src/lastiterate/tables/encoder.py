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
from lastiterate.tables.column_rules import (
    WAYS,
    Categorical,
    ColumnRule,
    DaysBetween,
    Intervals,
    rule_of,
)

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
        differences = _differences(described, rest, columns)
        unknown = sorted(set(described) - set(columns) - set(differences))
        if unknown:
            must_be = "about columns of the table, without the target"
            found = f"more: {missing_columns_text(unknown, columns)}"
            raise InvalidParameter("schema", must_be=must_be, found=found)
        undescribed = [name for name in columns if name not in described]
        if undescribed and rest is None:
            must_be = f"about every column: {WAYS} for each"
            read = {one for rule in differences.values() for one in rule.columns}
            found = f"nothing about {', '.join(undescribed)}"
            if read & set(undescribed):
                found += ' ("drop" columns that only "days_between" reads)'
            raise InvalidParameter("schema", must_be=must_be, found=found)
        rules = {name: described.get(name, rest) for name in columns} | differences
        encoder = cls({name: rule for name, rule in rules.items() if rule is not None})
        if encoder.width == 0:
            must_be = "about at least one column that is not dropped"
            raise InvalidParameter("schema", must_be=must_be, found="none")
        return encoder

    @cached_property
    def column_kinds(self) -> dict[str, str]:
        """The columns that are read, and the type of their cells: number, text or date."""
        sources = [name for one in self._differences.values() for name in one.columns]
        own = {
            name: rule.kind
            for name, rule in self.rules.items()
            if rule.kind is not None and name not in self._differences
        }
        return own | {name: own.get(name, "date") for name in sources}

    def schema(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """The entries, of those of a schema, for the columns that are read."""
        names = [*self.column_kinds, *self._differences]
        return {name: described.get(name, described.get(REST)) for name in names}

    @property
    def _differences(self) -> dict[str, DaysBetween]:
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, DaysBetween)}

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
        refused: dict[str, BadCells] = {}
        for name, rule in self.rules.items():
            width = len(rule.names(name))
            if rule.kind is not None:
                if isinstance(rule, DaysBetween):
                    column: Any = tuple(table[one] for one in rule.columns)
                else:
                    column = table[name]
                try:
                    rule.encode(column, out[:, first : first + width])
                except BadCells as bad:
                    refused[name] = bad
            first += width
        if refused:
            raise _bad_cells_error(self.rules, refused, before)

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
        found = {}
        for name, rule in self.rules.items():
            coded = rule.number if isinstance(rule, DaysBetween) else rule
            if isinstance(coded, (Categorical, Intervals)):
                found[name] = coded.baseline(name)
        return found

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


def _differences(
    described: Mapping[str, ColumnRule], rest: ColumnRule | None, columns: Sequence[str]
) -> dict[str, DaysBetween]:
    """The entries for days between two columns; raises if they do not fit to these."""
    found = {name: rule for name, rule in described.items() if isinstance(rule, DaysBetween)}
    for name, rule in found.items():
        read = {one: described.get(one, rest) for one in rule.columns}
        absent = [one for one in read if one not in columns]
        if name in columns or absent or isinstance(rest, DaysBetween):
            must_be = "under a new name, about two columns of the table"
            said = missing_columns_text(absent, columns) if absent else "the name of a column"
            raise InvalidParameter(f"schema[{name!r}]", must_be=must_be, found=said)
        numbers = [one for one, own in read.items() if own is not None and own.kind == "number"]
        if numbers:
            must_be = 'about columns of dates: {"dates": ["2021-01-01", "2024-12-31"]} or "drop"'
            said = f"an entry for numbers about {', '.join(numbers)}"
            raise InvalidParameter(f"schema[{name!r}]", must_be=must_be, found=said)
    return found


_CELLS = {"number": "a finite number", "text": "text", "date": "a date"}


def _bad_cells_error(
    rules: Mapping[str, ColumnRule], refused: Mapping[str, BadCells], before: int
) -> InvalidParameter:
    """The error for all columns with cells that cannot be used."""
    if len(refused) == 1:
        ((name, bad),) = refused.items()
        must_be = f"{_CELLS[str(rules[name].kind)]} in every row"
        must_be += f' ({bad.remedy}), or "drop" in the schema' if bad.remedy else ""
        return InvalidParameter(f"column {name!r}", must_be=must_be, found=bad.found(before))
    remedies = [f"for {name!r} {bad.remedy}" for name, bad in refused.items() if bad.remedy]
    must_be = f'readable in every row ({"; ".join([*remedies, ""])}or "drop" in the schema)'
    found = "; ".join(f"in {name!r} {bad.found(before)}" for name, bad in refused.items())
    return InvalidParameter(
        f"columns {', '.join(map(repr, refused))}", must_be=must_be, found=found
    )
