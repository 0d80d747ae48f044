"""Cells of a column, whatever holds them: numbers, and places in a public list of values.

Columns may be arrays, lists, or columns of pandas, polars or pyarrow.  No message has a cell in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array

# What others write where there is nothing.
MISSING = frozenset(
    {"", "?", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>"}
)
_SHOWN = 5


class BadCells(Exception):
    """Cells that cannot be used: what they are, and in which rows of the block."""

    def __init__(self, what: str, rows: Iterable[int]) -> None:
        self.what, self.rows = what, list(rows)
        super().__init__(what)

    def found(self, before: int) -> str:
        """In words, where `before` rows came before the block; the first row is row 1."""
        numbers = [f"{before + row + 1:,}" for row in self.rows[:_SHOWN]]
        if len(self.rows) == 1:
            return f"{self.what} in row {numbers[0]}, the header not counted"
        more = " and others" if len(self.rows) > _SHOWN else ""
        return f"{self.what} in rows {', '.join(numbers)}{more}, the header not counted"


def numbers_of(column: Any) -> Array:
    """As numbers, nan where a cell is missing."""
    cells = _as_array(column)
    if cells.dtype.kind in "fiub":
        numbers = cells.astype(np.float64)
    else:
        numbers = np.array(_numbers(cells.tolist()), dtype=np.float64)
    if np.isinf(numbers).any():
        raise BadCells("text or an infinite number", np.flatnonzero(np.isinf(numbers)).tolist())
    return numbers


def places_of(column: Any, values: tuple[str, ...]) -> NDArray[np.intp]:
    """For each cell its place among the values, -1 for none."""
    if _is_arrow(column):
        found = _arrow_places(column, values)
        if found is not None:
            return found
    cells = _as_array(column)
    if cells.dtype.kind in "fiub":
        return _places_of_numbers(cells, values)
    known = {value: k for k, value in enumerate(values)}
    by_number = _numbered(values)

    def place(cell: Any) -> int:
        if _is_nothing(cell):
            return -1
        # Numbers as in a column of numbers alone, which one cell of text makes a column of objects.
        if isinstance(cell, bool | int | float | np.number | np.bool_):
            return by_number.get(_number(cell), -1)
        return known.get(_text(cell), -1)

    return np.array([place(cell) for cell in cells.tolist()], dtype=np.intp)


def missing_in(column: Any, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows, among those given, in which the cell is missing."""
    if rows.size == 0:
        return rows
    cells = _as_array(column)[rows].tolist()
    return rows[[_is_missing(cell) for cell in cells]]


def texts_of(column: Any) -> list[str]:
    """As they are written; empty where missing."""
    return ["" if _is_nothing(cell) else _text(cell) for cell in _as_array(column).tolist()]


def length_of(column: Any) -> int:
    """How many cells there are."""
    return len(column)


def _numbers(cells: list[Any]) -> list[float]:
    try:
        return list(map(float, cells))  # as in most columns
    except (TypeError, ValueError, OverflowError):
        return [_number(cell) for cell in cells]


def _number(cell: Any) -> float:
    """nan where missing; inf where it is no finite number."""
    if _is_missing(cell):
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def _is_missing(cell: Any) -> bool:
    return _is_nothing(cell) or (isinstance(cell, str) and cell.strip() in MISSING)


def _is_nothing(cell: Any) -> bool:
    """None, nan, or what pandas has for them."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and math.isnan(cell)


def _text(cell: Any) -> str:
    return cell.strip() if isinstance(cell, str) else str(cell)


def _places_of_numbers(cells: NDArray[Any], values: tuple[str, ...]) -> NDArray[np.intp]:
    found = np.full(cells.size, -1, dtype=np.intp)
    for number, k in _numbered(values).items():
        found[cells == number] = k
    return found


def _numbered(values: tuple[str, ...]) -> dict[float, int]:
    """The place of each value that is a number: 1, 1.0 and true are the same."""
    numbers = [{"true": 1.0, "false": 0.0}.get(value.lower(), _number(value)) for value in values]
    return {number: k for k, number in enumerate(numbers) if math.isfinite(number)}


def _as_array(column: Any) -> NDArray[Any]:
    if isinstance(column, (list, tuple)):
        array = np.empty(len(column), dtype=object)
        array[:] = column
    else:
        array = np.asarray(column)
    return np.asarray(array).reshape(-1)


def _is_arrow(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "pyarrow"


def _arrow_places(column: Any, values: tuple[str, ...]) -> NDArray[np.intp] | None:
    """Each cell's position among the values, -1 for none; None if the column does not hold text.

    It makes no Python object for each cell.
    """
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    trimmed = compute.utf8_trim_whitespace(column)
    known = pa.array(values, type=column.type)
    places = compute.fill_null(compute.index_in(trimmed, value_set=known), -1)
    return np.array(places, dtype=np.intp)
