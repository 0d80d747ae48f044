"""A schema to fill in: the names of the columns and what they hold, and no cell of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import BadCells, numbers_of
from lastiterate.tables.files import TableFile, readable

_ROWS = 1_000


def skeleton(file: TableFile, *, target: str | None = None, regression: bool = False) -> str:
    """JSON with an entry for every column, as the first rows tell numbers from text."""
    if target is not None and target not in file.names:
        must_be = f"one of the {len(file.names)} names in the first line of the file"
        raise InvalidParameter("target", target, must_be=must_be)
    with readable(file.path):
        cells = file.sample(_ROWS)
        entries: dict[str, Any] = {name: _entry(cells[name]) for name in file.names}
    if target is not None:
        entries[target] = {"range": [None, None]} if regression else {"values": []}
    lines = [f"  {json.dumps(name)}: {json.dumps(rule)}" for name, rule in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(cells: Any) -> dict[str, Any]:
    try:
        numbers = numbers_of(cells)
    except BadCells:
        return {"values": []}
    return {"values": []} if np.isnan(numbers).all() else {"range": [None, None]}
