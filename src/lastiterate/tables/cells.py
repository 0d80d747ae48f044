"""Cells of a column as numbers, or as positions in a public list of values.

Columns may be arrays, lists, or columns of pandas, polars or pyarrow.  No message quotes a cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array

# Spellings of a missing value.
MISSING = frozenset(
    {"", "?", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>"}
)
_TRUTH = {"true": 1.0, "false": 0.0}
_SHOWN = 5


class BadCells(Exception):
    """Cells that cannot be used: a description, and their rows in the block."""

    def __init__(self, what: str, rows: Iterable[int]) -> None:
        self.what, self.rows = what, list(rows)
        super().__init__(what)

    def found(self, before: int) -> str:
        """The description with row numbers, counted from 1; `before` rows precede the block."""
        numbers = [f"{before + row + 1:,}" for row in self.rows[:_SHOWN]]
        if len(self.rows) == 1:
            return f"{self.what} in row {numbers[0]}, the header not counted"
        more = " and others" if len(self.rows) > _SHOWN else ""
        return f"{self.what} in rows {', '.join(numbers)}{more}, the header not counted"


def numbers_of(column: Any) -> Array:
    """The column as numbers, nan where a cell is missing."""
    cells = _as_array(column)
    if cells.dtype.kind in "fiub":
        numbers = cells.astype(np.float64)
    else:
        numbers = np.array(_numbers(cells.tolist()), dtype=np.float64)
    if np.isinf(numbers).any():
        raise BadCells("text or an infinite number", np.flatnonzero(np.isinf(numbers)).tolist())
    return numbers


def positions_of(column: Any, values: tuple[str, ...]) -> NDArray[np.intp]:
    """The position of each cell among the values, -1 for none."""
    if _is_arrow(column):
        found = _arrow_positions(column, values)
        if found is not None:
            return found
    cells = _as_array(column)
    known = positions_by_key(values)
    if cells.dtype.kind in "fiub":
        return _positions_of_numbers(cells, known)
    return np.array([_position(cell, known) for cell in cells.tolist()], dtype=np.intp)


def value_key(cell: Any) -> float | str | None:
    """The number that a cell is or spells, else its text; None for a missing one.

    A single cell of another type may turn a whole column into text, objects or floats.  So the key
    must not depend on how the column is stored: 1, 1.0, "1", "1.0" and true are the same.
    """
    if _is_nothing(cell):
        return None
    text = cell.strip() if isinstance(cell, str) else cell
    if isinstance(text, str) and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    number = _number(text)
    if math.isfinite(number):
        return number
    return str(text)


def positions_by_key(values: Iterable[Any]) -> dict[float | str, int]:
    """The position of each value by its `value_key`."""
    keys = [value_key(value) for value in values]
    return {key: k for k, key in enumerate(keys) if key is not None}


def _position(cell: Any, known: Mapping[float | str, int]) -> int:
    key = value_key(cell)
    return -1 if key is None else known.get(key, -1)


def missing_in(column: Any, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows, among those given, in which the cell is missing."""
    if rows.size == 0:
        return rows
    cells = _as_array(column)[rows].tolist()
    return rows[[_is_missing(cell) for cell in cells]]


def texts_of(column: Any) -> list[str]:
    """The cells as they are written; empty where missing."""
    return ["" if _is_nothing(cell) else _text(cell) for cell in _as_array(column).tolist()]


def length_of(column: Any) -> int:
    """The number of cells."""
    return len(column)


def _numbers(cells: list[Any]) -> list[float]:
    try:
        return list(map(float, cells))  # as in most columns
    except (TypeError, ValueError, OverflowError):
        return [_number(cell) for cell in cells]


def _number(cell: Any) -> float:
    """The number of a cell; nan if missing, inf if it is no finite number."""
    if _is_missing(cell):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def _is_missing(cell: Any) -> bool:
    return _is_nothing(cell) or (isinstance(cell, str) and cell.strip() in MISSING)


def _is_nothing(cell: Any) -> bool:
    """Whether a cell is None, nan, or missing in pandas."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and math.isnan(cell)


def _text(cell: Any) -> str:
    return cell.strip() if isinstance(cell, str) else str(cell)


def _positions_of_numbers(
    cells: NDArray[Any], known: Mapping[float | str, int]
) -> NDArray[np.intp]:
    numbers = cells.astype(np.float64)
    found = np.full(cells.size, -1, dtype=np.intp)
    for key, k in known.items():
        if not isinstance(key, str):
            found[numbers == key] = k
    return found


def _as_array(column: Any) -> NDArray[Any]:
    if isinstance(column, (list, tuple)):
        array = np.empty(len(column), dtype=object)
        array[:] = column
    else:
        array = np.asarray(column)
    return np.asarray(array).reshape(-1)


def _is_arrow(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "pyarrow"


def _arrow_positions(column: Any, values: tuple[str, ...]) -> NDArray[np.intp] | None:
    """Each cell's position among the values, -1 for none; None if the column does not hold text.

    It makes one Python object for each text that occurs.
    """
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    encoded = compute.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # an empty column has no chunks to combine
        return np.zeros(0, dtype=np.intp)
    known = positions_by_key(values)
    each = np.array([_position(text, known) for text in encoded.dictionary.to_pylist()] + [-1])
    which = compute.fill_null(encoded.indices, len(each) - 1)
    return np.asarray(each[np.array(which, dtype=np.intp)], dtype=np.intp)
