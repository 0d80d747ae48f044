"""A JSON file, or one line that says why it is none."""

from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidParameter
from lastiterate.run.serialise import unambiguous_json


def read_object(path: Path, *, name: str, must_be: str) -> dict[str, Any]:
    """The object in a file that the argument `name` gave."""
    try:
        record = unambiguous_json(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise InvalidParameter(name, str(path), must_be=must_be) from None
    if not isinstance(record, dict):
        raise InvalidParameter(name, str(path), must_be=must_be)
    return record
