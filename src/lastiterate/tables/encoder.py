"""Rows of features from the columns of a table, by its schema."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate._files import is_record
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.serialise import unambiguous_json
from lastiterate.tables.cells import BadCells, days_of, missing_in, numbers_of, read
from lastiterate.tables.column_rules import (
    AS_IT_IS,
    BASELINE,
    BINS,
    CUTS,
    DATES,
    DAYS_BETWEEN,
    DROP,
    EMPTY,
    WAYS,
    Categorical,
    ColumnRule,
    DaysBetween,
    Intervals,
    Numeric,
    is_unfilled,
    rule_of,
)
from lastiterate.tables.files import TableFile, read_object, readable

REST = "*"  # stands for every column that has no entry of its own
_CELL_WORDS = {"number": "a finite number", "text": "text", "date": "a date"}
_TRAINING_COPIES = 2  # a second one is in the order of the batches
ColumnReader = Callable[[Any, int], Any]  # of a column, and how many rows came before
_EXAMPLE = 'JSON such as {"age": {"range": [0, 100]}, "job": {"values": ["a", "b"]}, "id": "drop"}'
_SAMPLED_ROWS = 1_000
_SKELETON_PARTS = {"range", "values", DATES, "format"}  # of the entries of a skeleton

_ENTRY_PARTS = {
    "range", CUTS, BINS, DATES, DAYS_BETWEEN, "format", "values", "missing", "indicator",
    AS_IT_IS, BASELINE,
}  # fmt: skip

# Formats of dates in text that a skeleton tries; if cells fit several, it leaves the format open.
_FORMATS = (
    None,
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d.%m.%y",
)


@dataclass(frozen=True)
class Encoder:
    """The rules by which columns become features, in order; all of them public."""

    rules: Mapping[str, ColumnRule]

    @classmethod
    def of(cls, schema: Mapping[str, Any], columns: Sequence[str]) -> Encoder:
        """The encoder of a table with these columns, all of which the schema must describe."""
        described = {str(name): rule_of(str(name), rule) for name, rule in schema.items()}
        rest = described.pop(REST, None)
        differences = _day_differences(described, rest, columns)
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
        sources = [name for one in self._day_differences.values() for name in one.columns]
        own = {
            name: rule.kind
            for name, rule in self.rules.items()
            if rule.kind is not None and name not in self._day_differences
        }
        return own | {name: own.get(name, "date") for name in sources}

    def schema(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """The entries, of those of a schema, for the columns that are read."""
        names = [*self.column_kinds, *self._day_differences]
        return {name: described.get(name, described.get(REST)) for name in names}

    @property
    def _day_differences(self) -> dict[str, DaysBetween]:
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
        lengths = {len(table[name]) for name in self.column_kinds}
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


def _day_differences(
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


def _bad_cells_error(
    rules: Mapping[str, ColumnRule], refused: Mapping[str, BadCells], before: int
) -> InvalidParameter:
    """The error for all columns with cells that cannot be used."""
    if len(refused) == 1:
        ((name, bad),) = refused.items()
        must_be = f"{_CELL_WORDS[str(rules[name].kind)]} in every row"
        must_be += f' ({bad.remedy}), or "drop" in the schema' if bad.remedy else ""
        return InvalidParameter(f"column {name!r}", must_be=must_be, found=bad.found(before))
    remedies = [f"for {name!r} {bad.remedy}" for name, bad in refused.items() if bad.remedy]
    must_be = f'readable in every row ({"; ".join([*remedies, ""])}or "drop" in the schema)'
    found = "; ".join(f"in {name!r} {bad.found(before)}" for name, bad in refused.items())
    return InvalidParameter(
        f"columns {', '.join(map(repr, refused))}", must_be=must_be, found=found
    )


# The rows of a file as features, encoded block by block, in memory or in a mapped file.


class Sink(Protocol):
    """A store that encoded rows are written to."""

    def more(self, count: int) -> NDArray[Any]: ...
    def keep(self) -> None: ...
    def to_array(self) -> NDArray[Any]: ...


class InMemory:
    """An array that grows in place."""

    def __init__(self, width: int, dtype: Any) -> None:
        self._rows = np.empty((0, width), dtype=dtype)
        self._most = available_memory() / _TRAINING_COPIES

    def check(self, rows: int) -> None:
        """Raise unless this many rows fit into memory."""
        size = rows * self._rows.shape[1] * self._rows.itemsize
        if size > self._most:
            must_be = (
                f"at most {self._most / 1e9:.3g} GB once encoded, for which there is memory; "
                "--mapped FOLDER keeps the rows in a scratch file there instead"
            )
            raise InvalidParameter("data", must_be=must_be, found=f"{size / 1e9:.3g} GB or more")

    def more(self, count: int) -> NDArray[Any]:
        """New rows at the end, to be filled."""
        before, width = self._rows.shape
        self.check(before + count)
        self._rows.resize((before + count, width), refcheck=False)
        return self._rows[before:]

    def keep(self) -> None:
        """Do nothing: rows were filled in place."""

    def to_array(self) -> NDArray[Any]:
        return self._rows


class InFile:
    """A file of plain numbers, for `numpy.memmap`."""

    def __init__(self, path: Path, width: int, dtype: Any) -> None:
        self._path, self._width, self._dtype = path, width, np.dtype(dtype)
        self._block = np.empty((0, width), dtype=dtype)
        self._count = 0
        path.open("xb").close()  # never in the place of another

    def more(self, count: int) -> NDArray[Any]:
        """New rows, to be filled."""
        self._block = np.empty((count, self._width), dtype=self._dtype)
        return self._block

    def keep(self) -> None:
        """Append the rows that were filled to the file."""
        with self._path.open("ab") as file:
            self._block.tofile(file)
        self._count += len(self._block)

    def to_array(self) -> NDArray[Any]:
        shape = (self._count, self._width)
        return np.memmap(self._path, dtype=self._dtype, mode="r", shape=shape)


@dataclass(frozen=True)
class EncodedTable:
    """The encoded rows of a table, and its other columns."""

    rows: NDArray[Any]
    other_columns: dict[str, Any]


def encode_file(
    file: TableFile,
    encoder: Encoder,
    other_columns: Mapping[str, tuple[str, ColumnReader]],
    *,
    dtype: Any = np.float64,
    mapped: Path | None = None,
) -> EncodedTable:
    """The features of a file, and its other columns, each read by its type and function."""
    kinds = encoder.column_kinds | {name: kind for name, (kind, _) in other_columns.items()}
    sink: Sink
    if mapped is None:
        sink = memory = InMemory(encoder.width, dtype)
        memory.check(file.rows or 0)
    else:
        sink = InFile(mapped, encoder.width, dtype)
    parts: dict[str, list[Any]] = {name: [] for name in other_columns}
    try:
        for before, count, block in numbered_blocks(file, kinds):
            encoder.encode(block, sink.more(count), before=before)
            sink.keep()
            for name, (_, make) in other_columns.items():
                parts[name].append(make(block[name], before))
    except BaseException:
        if mapped is not None:
            mapped.unlink(missing_ok=True)
        raise
    return EncodedTable(
        sink.to_array(), {name: np.concatenate(part) for name, part in parts.items()}
    )


def numbered_blocks(
    file: TableFile, kinds: Mapping[str, str]
) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Blocks of these columns, each with the number of rows before it and in it."""
    absent = [name for name in kinds if name not in file.names]
    if absent:
        must_be = f"a table with columns {', '.join(kinds)}"
        found = missing_columns_text(absent, file.names)
        raise InvalidParameter("data", must_be=must_be, found=found)
    done = 0
    with readable(file.path):
        for block in file.blocks(kinds):
            count = len(next(iter(block.values())))
            yield done, count, block
            done += count


def available_memory() -> float:
    """The bytes of memory that are available; inf if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return 1024.0 * int(found)
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


# Schemas in JSON files: reading one, and a skeleton to fill in, which holds no cell.


def schema_in(path: Path) -> dict[str, Any]:
    """The entries of a schema in a file; each entry is checked where it is used."""
    return _check_filled(read_object(path, name="schema", must_be=_EXAMPLE))


def schema_of(given: Any) -> dict[str, Any]:
    """The entries of a schema, given as a mapping or as the path of a file."""
    if isinstance(given, Mapping):
        return _check_filled(dict(given))
    must_be = "a mapping of columns, or the path of a JSON file that holds one"
    if not isinstance(given, (str, Path)):
        raise InvalidType("schema", must_be=must_be, found=type(given).__name__)
    try:
        return schema_in(Path(given))
    except OSError:
        raise InvalidParameter("schema", str(given), must_be=must_be) from None


def _check_filled(schema: dict[str, Any]) -> dict[str, Any]:
    empty = [str(name) for name, rule in schema.items() if is_unfilled(rule)]
    if empty:
        must_be = "filled in with public facts on each column"
        found = f"empty ranges or values of {', '.join(empty)}"
        raise InvalidParameter("schema", must_be=must_be, found=found)
    return schema


def skeleton(file: TableFile, *, target: str | None = None, regression: bool = False) -> str:
    """A schema with an empty entry, for numbers, dates or text, for every column."""
    if target is not None:
        check_is_column(target, file.names)
    with readable(file.path):
        cells = file.sample(_SAMPLED_ROWS)
        entries: dict[str, Any] = {name: _skeleton_entry(cells[name]) for name in file.names}
    if target is not None:
        entries[target] = {"range": [None, None]} if regression else {"values": []}
    return _schema_text(entries)


def _schema_text(entries: Mapping[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {json.dumps(rule)}" for name, rule in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


is_schema = is_record(
    lambda schema: (
        bool(schema)
        and all(
            rule in (AS_IT_IS, DROP)
            or (isinstance(rule, dict) and bool(rule) and set(rule) <= _ENTRY_PARTS)
            for rule in schema.values()
        )
    )
)


def is_skeleton(content: bytes) -> bool:
    """Whether a file is as `skeleton` wrote it; what was filled in holds somebody's work."""
    try:
        schema = unambiguous_json(content.decode("utf-8"))
        if not isinstance(schema, dict) or _schema_text(schema).encode() != content:
            return False
        return all(is_unfilled(rule) and set(rule) <= _SKELETON_PARTS for rule in schema.values())
    except (ValueError, RecursionError):
        return False


def _skeleton_entry(column: Any) -> dict[str, Any]:
    try:
        cells = read(column)
    except BadCells:
        return {"values": []}
    if _is_all(numbers_of, cells):
        return {"range": [None, None]}
    fitting = [one for one in _FORMATS if _is_all(days_of, cells, one)]
    if not fitting:
        return {"values": []}
    dates: dict[str, Any] = {DATES: [None, None]}
    if None in fitting:
        return dates
    return dates | {"format": fitting[0] if len(fitting) == 1 else None}


def _is_all(read_as: Callable[..., Any], *column: Any) -> bool:
    """Whether all cells can be read so, and not all are missing."""
    try:
        return not np.isnan(read_as(*column)).all()
    except BadCells:
        return False


# The column to predict: one of declared labels, or a number in a declared range.


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
        """The numbers of a column; errors count rows from `before`."""
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
