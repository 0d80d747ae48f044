"""A schema as it is given: a mapping, or the JSON file that `lastiterate schema` began."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.json_file import read_object
from lastiterate.tables.rules import is_unfilled

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
        must_be = "filled in with what is publicly known of each column"
        found = f"empty ranges or values of {', '.join(empty)}"
        raise InvalidParameter("schema", must_be=must_be, found=found)
    return schema
