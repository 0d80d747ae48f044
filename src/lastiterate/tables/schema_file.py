"""Schemas in JSON files: reading one, and a skeleton to fill in, which holds no cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate._files import is_record
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.cells import BadCells, numbers_of
from lastiterate.tables.column_rules import is_unfilled
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
    """A schema with an empty entry, for numbers or text, for every column."""
    if target is not None:
        check_is_column(target, file.names)
    with readable(file.path):
        cells = file.sample(_ROWS)
        entries: dict[str, Any] = {name: _entry(cells[name]) for name in file.names}
    if target is not None:
        entries[target] = {"range": [None, None]} if regression else {"values": []}
    lines = [f"  {json.dumps(name)}: {json.dumps(rule)}" for name, rule in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


# One that was filled in holds the work of whoever did.
is_skeleton = is_record(lambda schema: bool(schema) and all(map(is_unfilled, schema.values())))


def _entry(cells: Any) -> dict[str, Any]:
    try:
        numbers = numbers_of(cells)
    except BadCells:
        return {"values": []}
    return {"values": []} if np.isnan(numbers).all() else {"range": [None, None]}
