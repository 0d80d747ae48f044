"""Reading of JSON files, with errors in one line."""

import json
from pathlib import Path
from typing import Any

from lastiterate._files import with_an_end
from lastiterate.errors import InvalidParameter
from lastiterate.run.serialise import unambiguous_json


def read_object(path: Path, *, name: str, must_be: str) -> dict[str, Any]:
    """The JSON object in a file; errors name the argument `name`."""
    try:
        record = unambiguous_json(with_an_end(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        found = f"{path}, whose line {error.lineno}, column {error.colno} is no JSON: {error.msg}"
        raise InvalidParameter(name, must_be=must_be, found=found) from None
    except (ValueError, RecursionError):
        raise InvalidParameter(name, str(path), must_be=must_be) from None
    if not isinstance(record, dict):
        raise InvalidParameter(name, str(path), must_be=must_be)
    return record
