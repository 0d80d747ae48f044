"""Schemas in JSON files: reading one, and a skeleton to fill in, which holds no cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate._files import is_record
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.serialise import unambiguous_json
from lastiterate.tables.cells import BadCells, days_of, numbers_of, read
from lastiterate.tables.column_rules import (
    AS_IT_IS,
    BASELINE,
    BINS,
    CUTS,
    DATES,
    DAYS_BETWEEN,
    DROP,
    is_unfilled,
)
from lastiterate.tables.json_file import read_object
from lastiterate.tables.table_files import TableFile, readable
from lastiterate.tables.target import check_is_column

_SCHEMA = 'JSON such as {"age": {"range": [0, 100]}, "job": {"values": ["a", "b"]}, "id": "drop"}'


def schema_in(path: Path) -> dict[str, Any]:
    """The entries of a file; each is checked where it is used."""
    return _filled(read_object(path, name="schema", must_be=_SCHEMA))


def schema_of(given: Any) -> dict[str, Any]:
    """The entries of a mapping, or of the file of this path."""
    if isinstance(given, Mapping):
        return _filled(dict(given))
    must_be = "a mapping of columns, or the path of a JSON file that holds one"
    if not isinstance(given, (str, Path)):
        raise InvalidType("schema", must_be=must_be, found=type(given).__name__)
    try:
        return schema_in(Path(given))
    except OSError:
        raise InvalidParameter("schema", str(given), must_be=must_be) from None


def _filled(schema: dict[str, Any]) -> dict[str, Any]:
    empty = [str(name) for name, rule in schema.items() if is_unfilled(rule)]
    if empty:
        must_be = "filled in with public facts on each column"
        found = f"empty ranges or values of {', '.join(empty)}"
        raise InvalidParameter("schema", must_be=must_be, found=found)
    return schema


_ROWS = 1_000


def skeleton(file: TableFile, *, target: str | None = None, regression: bool = False) -> str:
    """A schema with an empty entry, for numbers, dates or text, for every column."""
    if target is not None:
        check_is_column(target, file.names)
    with readable(file.path):
        cells = file.sample(_ROWS)
        entries: dict[str, Any] = {name: _entry(cells[name]) for name in file.names}
    if target is not None:
        entries[target] = {"range": [None, None]} if regression else {"values": []}
    return _written(entries)


def _written(entries: Mapping[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {json.dumps(rule)}" for name, rule in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def is_skeleton(content: bytes) -> bool:
    """Whether a file is as `skeleton` wrote it; what was filled in holds somebody's work."""
    try:
        schema = unambiguous_json(content.decode("utf-8"))
        if not isinstance(schema, dict) or _written(schema).encode() != content:
            return False
        return all(is_unfilled(rule) and set(rule) <= _EMPTY for rule in schema.values())
    except (ValueError, RecursionError):
        return False


_EMPTY = {"range", "values", DATES, "format"}  # of the entries of a skeleton


_PARTS = {
    "range", CUTS, BINS, DATES, DAYS_BETWEEN, "format", "values", "missing", "indicator",
    AS_IT_IS, BASELINE,
}  # fmt: skip
is_schema = is_record(
    lambda schema: (
        bool(schema)
        and all(
            rule in (AS_IT_IS, DROP)
            or (isinstance(rule, dict) and bool(rule) and set(rule) <= _PARTS)
            for rule in schema.values()
        )
    )
)


# Of dates in text.  Where all cells are dates in two of them, the format is left open.
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


def _entry(column: Any) -> dict[str, Any]:
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
