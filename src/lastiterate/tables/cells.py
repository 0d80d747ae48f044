"""Cells of a column, each read by itself: as a number, a date, text, or nothing.

Tools give all cells of a column one type.  One odd cell (text among numbers, a date with an hour,
bytes, a number in double precision) changes how every other cell is stored, and what they mean must
not change with it.  So a cell means the same in every storage that a tool may choose for it, and
kinds for which that cannot be had are refused.  `read` takes every column apart, whoever stored it;
nothing else looks into one.  No message quotes a cell.

- Numbers are those that cells are or spell.  Single precision is printed with fewer digits than it
  has in double precision, so numbers count as equal if they are in single precision; from 2**24
  on, where codes are whole numbers, exactly.
- Dates are instants, whatever their unit or zone.  Midnight is the day, and as a declared value a
  day is the number of days since 1970, which polars makes of dates among numbers.  A time of day
  can be a declared value as text alone, since tools make numbers of others.
- Bytes are UTF-8.  Fixed widths of numpy drop zeros at the end.
- A spelling of a missing cell is a missing cell.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array

# As tools write a missing cell; no value can be declared by such a name.
WRITTEN_MISSING = frozenset({"", "None", "NaT", "<NA>", "null", "NULL"})  # and all that is nan

# As people write one; these may be declared as values.
MISSING = WRITTEN_MISSING | {"?", "NA", "N/A", "n/a", "NaN", "nan", "-nan"}

_TRUTH_VALUES = {"true": 1.0, "false": 0.0}
_MOST_SHOWN_ROWS = 5
_EXACT_BELOW = 2.0**24  # single precision has all whole numbers up to here
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DAY = 24 * _UNITS["h"]
_UNITS |= {"D": _DAY, "W": 7 * _DAY}
_EPOCH = dt.date(1970, 1, 1).toordinal()

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,18}))?)?)?"
    r" ?(?:Z|UTC|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)

DATES = 'for dates {"dates": ["2021-01-01", "2024-12-31"]}'
STORED = "stored as text, whole numbers, truth values or numbers in double precision"

_STORAGES = {
    "V": "records",
    "f": "numbers in half or extended precision",
    "c": "complex numbers",
    "m": "durations",
}

_ARROW_TEXTS = ("string", "large_string", "string_view")
_ARROW_BYTES = ("binary", "large_binary", "binary_view", "fixed_size_binary")
_LARGE_NUMBER = "a number of 2**24 or more in single precision"
_TIME_OF_DAY = "a time of day"
_DAYS = 'days, or times of day as text; or else {"dates": ["2021-01-01", "2024-12-31"]}'
_FAR_DATE, _NEAR_DATES = "a date before 1678 or after 2262", "dates between 1678 and 2262"

# Readers of files in blocks may drop a part of a line end inside a cell at the edge of a block.
_LINE_ENDS = re.compile(r"[\r\n]+")


class BadCells(Exception):
    """Cells that cannot be used: a description, their rows in the block, and what to do instead."""

    def __init__(self, what: str, rows: Iterable[int] = (), remedy: str | None = None) -> None:
        self.what, self.rows, self.remedy = what, list(rows), remedy
        super().__init__(what)

    def found(self, before: int) -> str:
        """The description with row numbers, counted from 1; `before` rows precede the block."""
        if not self.rows:
            return self.what
        numbers = [f"{before + row + 1:,}" for row in self.rows[:_MOST_SHOWN_ROWS]]
        if len(self.rows) == 1:
            return f"{self.what} in row {numbers[0]}, the header not counted"
        more = " and others" if len(self.rows) > _MOST_SHOWN_ROWS else ""
        return f"{self.what} in rows {', '.join(numbers)}{more}, the header not counted"


class Instant(NamedTuple):
    """A point in time, in nanoseconds since 1970 in UTC; `timed` if it is stored as a time of day.

    Beside other cells, numpy and polars make whole numbers of these, of their nanoseconds or
    microseconds, and what numpy prints of nanoseconds has nine digits.  So these are no values.
    """

    nanoseconds: int
    timed: bool = False


_BEYOND_STORAGE = Instant(2**64)  # any that storages of nanoseconds cannot have
Cell = float | str | Instant | None  # None: missing
Key = float | str | Instant


@dataclass(frozen=True)
class Cells:
    """The cells of a column: the different ones, and which of them each row has.

    Columns of numbers have these in an array instead, nan where one is missing, and columns of
    dates nanoseconds.  `large` are rows of numbers from 2**24 on in single precision.
    """

    length: int
    numbers: Array | None = None
    instants: NDArray[np.int64] | None = None
    missing: Any = None  # a mask, among instants
    different: Sequence[Cell] = ()
    which: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    timed: bool = False  # whether instants are stored with a time of day
    large: tuple[int, ...] = ()

    def each(self, read: Callable[[Cell], Any], dtype: Any) -> NDArray[Any]:
        """The result of `read` for each cell; columns of numbers and of dates have none."""
        found = np.array([read(cell) for cell in self.different], dtype=dtype)
        return found[self.which] if self.different else np.zeros(self.length, dtype=dtype)


def single(numbers: Any) -> Array:
    """Numbers in single precision, as every storage has them; those beyond it as they are."""
    given = np.asarray(numbers, dtype=np.float64)
    with np.errstate(all="ignore"):
        rounded = given.astype(np.float32).astype(np.float64)
    beyond = np.isinf(rounded)
    return np.where(beyond, given, rounded) if beyond.any() else rounded


def numbers_of(column: Any) -> Array:
    """The column as numbers in single precision, nan where a cell is missing."""
    numbers = single(any_numbers_of(column))
    bad = np.flatnonzero(np.isinf(numbers))
    if bad.size:
        raise BadCells("text or an infinite number", bad.tolist(), _remedy_of(column, int(bad[0])))
    return numbers


def any_numbers_of(column: Any) -> Array:
    """The numbers of cells, nan where one is missing, infinite where it is none."""
    cells = read(column)
    if cells.instants is not None:
        raise BadCells("dates", (), DATES)
    dates = np.flatnonzero(cells.each(lambda cell: isinstance(cell, Instant), np.bool_))
    if dates.size:
        raise BadCells("a date", dates.tolist(), DATES)
    return cells.each(_number, np.float64) if cells.numbers is None else cells.numbers


def positions_of(column: Any, known: Mapping[Key, int]) -> NDArray[np.intp]:
    """The position of each cell among declared values, by their keys; -1 for none."""
    cells = read(column)
    if cells.large:
        raise BadCells(_LARGE_NUMBER, cells.large, STORED)
    if cells.numbers is not None:
        return _positions_of_numbers(cells.numbers, known)
    if cells.timed:
        raise BadCells(_TIME_OF_DAY, (), _DAYS)
    if cells.instants is not None:
        days, rest = np.divmod(cells.instants, _DAY)
        days = np.where(cells.missing | (rest != 0), math.nan, days)
        found = _positions_of_numbers(days, known)
        for key, k in known.items():
            if isinstance(key, Instant):
                found[~cells.missing & (cells.instants == key.nanoseconds)] = k
        return found
    for is_bad, what, remedy in (
        (_is_far, _FAR_DATE, _NEAR_DATES),
        (_is_timed, _TIME_OF_DAY, _DAYS),
    ):
        bad = np.flatnonzero(cells.each(is_bad, np.bool_))
        if bad.size:
            raise BadCells(what, bad.tolist(), remedy)

    def position(cell: Cell) -> int:
        return -1 if cell is None else known.get(_key(cell), -1)

    return cells.each(position, np.intp)


def keys_of(values: Iterable[Any]) -> list[Key | None]:
    """Keys that declared values are recognised by; None for a spelling of a missing cell."""
    cells = [cell_of(value) for value in values]
    return [None if cell is None else _key(cell) for cell in cells]


def missing_in(column: Any, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows, among those given, in which the cell is missing."""
    if rows.size == 0:
        return rows
    cells = read(column)
    if cells.numbers is not None:
        missing: Any = np.isnan(cells.numbers)
    else:
        missing = cells.each(_is_missing, np.bool_) if cells.missing is None else cells.missing
    return np.asarray(rows[missing[rows]], dtype=np.intp)


def days_of(column: Any, format: str | None = None) -> Array:
    """The column as days since 1970, nan where a cell is missing.

    Text is a date as ISO 8601 writes it, or else in the format.
    """
    cells = read(column)
    length = cells.length
    if cells.instants is not None:
        days = np.where(cells.missing, math.nan, _in_days(cells.instants))
    elif cells.numbers is not None and np.isnan(cells.numbers).all():
        days = cells.numbers
    else:
        if cells.large:
            raise BadCells(_LARGE_NUMBER, cells.large, STORED)
        if cells.numbers is not None:
            different, which = np.unique(cells.numbers, return_inverse=True)
            cells = Cells(length, different=[*map(_of_number, different.tolist())], which=which)
        days = cells.each(lambda cell: _days(cell, format), np.float64)
    far = np.flatnonzero(np.isneginf(days))
    if far.size:
        raise BadCells(
            _FAR_DATE, far.tolist(), f"{_NEAR_DATES}; placeholders for no date must be left empty"
        )
    bad = np.flatnonzero(np.isinf(days))
    if bad.size:
        written = "YYYY-MM-DD" if format is None else f"YYYY-MM-DD or {format!r}"
        remedy = f'dates, in text {written}; another "format" can be stated, as "%d.%m.%Y"'
        raise BadCells("something else", bad.tolist(), remedy)
    return days


def texts_of(column: Any) -> list[str]:
    """The cells as they are written; empty where missing."""
    array = array_of(column)
    cells = array.astype(str).tolist() if array.dtype.kind == "M" else array.tolist()
    return [_written_cell(cell) for cell in cells]


def read(column: Any) -> Cells:
    """The cells of a column; raises `BadCells` for kinds that are none."""
    if isinstance(column, Cells):
        return column
    _refuse_several_columns(column)
    stored = _arrow_of(column)
    if stored is not None:
        found = _different_texts(stored)
        if found is not None:
            return found
    array = array_of(column if stored is None else stored)
    kind = array.dtype.kind
    if kind in "biu" or (kind == "f" and array.dtype.itemsize in (4, 8)):
        return _cells_of_numbers(array)
    if kind == "M":
        return _cells_of_instants(array)
    if kind in "OUST":
        return _cells_of_objects(array.tolist())
    raise BadCells(_STORAGES.get(kind, f"cells of type {array.dtype}"), (), STORED)


def array_of(column: Any) -> NDArray[Any]:
    """The cells of a column in an array, each with the type that it had."""
    _refuse_several_columns(column)
    if not hasattr(column, "__array__"):
        return np.fromiter(column, dtype=object, count=len(column))
    if isinstance(column, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(column).reshape(-1)
        plain = array_of(column.data)
        return plain if not missing.any() else np.where(missing, np.array(None), _as_objects(plain))
    stored = _arrow_of(column)
    if stored is not None:
        kind = stored.type
        if not (_is_plain(kind) or _is_text(kind)):
            raise BadCells(f"cells of type {_plain_name(kind)}", (), STORED)
        if _is_text(kind):
            return _array_of_texts(stored)
        column = stored
    elif type(column).__module__.partition(".")[0] == "pandas":
        held = getattr(column, "array", column)
        if hasattr(held, "tz_convert"):
            column = held if held.tz is None else held.tz_convert(None)
        elif getattr(getattr(held.dtype, "numpy_dtype", None), "kind", "") == "f":
            column = held.to_numpy(dtype=held.dtype.numpy_dtype, na_value=math.nan)
    return np.asarray(column).reshape(-1)


def _refuse_several_columns(column: Any) -> None:
    """Raise for tables and arrays of more than one cell in a row, whose cells would cross rows."""
    shape = getattr(column, "shape", None)
    if not isinstance(shape, tuple) or len(shape) == 1:
        return
    if not isinstance(column, np.ndarray) or any(width != 1 for width in shape[1:]):
        found = f"an array or table of shape {tuple(map(int, shape))}"
        raise BadCells(found, (), "a column of one cell for each row")


def _as_objects(array: NDArray[Any]) -> NDArray[Any]:
    """An array of objects; dates are of numpy, which else makes numbers of some."""
    cells = list(array) if array.dtype.kind == "M" else array.tolist()
    return np.fromiter(cells, dtype=object, count=array.size)


def _arrow_of(column: Any) -> Any:
    """The column as pyarrow has it, where that keeps every cell's type; None otherwise."""
    package = type(column).__module__.partition(".")[0]
    if package not in ("pyarrow", "pandas", "polars"):
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    if package == "pandas":
        held = getattr(column, "array", column)
        # Types of pandas that have no form in pyarrow are extensions of it.
        if not hasattr(held, "__arrow_array__") or hasattr(held, "tz_convert"):
            return None
        try:
            column = pa.array(held)
        except (UnicodeError, pa.ArrowException):  # text that is no Unicode; other objects
            return None
    elif package == "polars":
        kind = str(column.dtype)
        if kind.startswith(("Struct", "List", "Array")):
            raise BadCells(f"cells of type {kind.partition('(')[0]}", (), STORED)
        if kind in ("Int128", "UInt128"):
            raise BadCells(f"cells of type {kind}", (), STORED)
        if not kind.startswith(("String", "Binary", "Categorical", "Enum")):
            return None
        column = column.to_arrow()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column


def _is_plain(kind: Any) -> bool:
    """Whether a type of pyarrow is one whose cells numpy has as they are."""
    from pyarrow import types

    among = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_timestamp,
        types.is_date,
        types.is_decimal,
        types.is_null,
        types.is_duration,
        types.is_time,
    )
    return any(one(kind) for one in among)


def _is_text(kind: Any) -> bool:
    return str(kind).partition("[")[0] in (*_ARROW_TEXTS, *_ARROW_BYTES)


def _as_bytes(column: Any) -> Any:
    """A column of text as bytes, which need not be UTF-8."""
    kind = str(column.type).partition("[")[0]
    if kind in ("string", "binary"):
        return column if kind == "binary" else column.cast("binary")
    if kind == "string_view":
        column = column.cast("binary_view")
    return column.cast("large_binary")


def _array_of_texts(column: Any) -> NDArray[Any]:
    """A column of text as objects: text where it was text, bytes where it was bytes."""
    cells = _as_bytes(column).to_pylist()
    if str(column.type) in _ARROW_TEXTS:
        cells = [None if one is None else one.decode("utf-8", "surrogateescape") for one in cells]
    return np.fromiter(cells, dtype=object, count=len(cells))


def _plain_name(kind: Any) -> str:
    """The name of a type of pyarrow, without names of fields."""
    return str(kind).partition("<")[0].partition("[")[0]


def _different_texts(column: Any) -> Cells | None:
    """The cells of a column of text, with one object for each different text; else None."""
    import pyarrow as pa
    from pyarrow import compute

    if not _is_text(column.type):
        return None
    column = _as_bytes(column)
    encoded = compute.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # an empty column has no chunks to combine
        return Cells(0)
    texts = encoded.dictionary.to_pylist()
    which = compute.fill_null(encoded.indices, len(texts))
    different = [*map(cell_of, texts), None]
    return Cells(len(column), different=different, which=np.array(which, dtype=np.intp))


def _cells_of_numbers(array: NDArray[Any]) -> Cells:
    numbers = array.astype(np.float64)
    large: list[int] = []
    if array.dtype.kind == "f" and array.dtype.itemsize == 4:
        is_large = (np.abs(numbers) >= _EXACT_BELOW) & np.isfinite(numbers)
        large = np.flatnonzero(is_large)[: _MOST_SHOWN_ROWS + 1].tolist()
    return Cells(array.size, numbers=numbers, large=tuple(large))


def _cells_of_instants(array: NDArray[Any]) -> Cells:
    missing = np.isnat(array)
    if missing.all():
        return Cells(array.size, numbers=np.full(array.size, math.nan))
    ticks, factor = _ticks(array)
    far = np.flatnonzero(~missing & (np.abs(ticks.astype(np.float64)) * factor >= 2.0**63))
    if far.size:
        raise BadCells(_FAR_DATE, far.tolist(), _NEAR_DATES)
    instants = ticks * np.int64(factor)
    return Cells(array.size, instants=instants, missing=missing, timed=factor < _DAY)


def _ticks(array: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Dates as whole numbers, and the nanoseconds of one."""
    unit, count = np.datetime_data(array.dtype)
    if unit not in _UNITS:
        raise BadCells(f"dates of type {array.dtype}", (), "dates in days, seconds or nanoseconds")
    return array.astype(f"<M8[{count}{unit}]").view(np.int64), _UNITS[unit] * count


def _cells_of_objects(cells: list[Any]) -> Cells:
    kinds = set(map(type, cells))
    if kinds <= {int, float, bool, type(None)}:
        try:
            return Cells(len(cells), numbers=np.array(cells, dtype=np.float64))
        except OverflowError:
            pass
    if kinds == {str}:
        try:
            return Cells(len(cells), numbers=np.array(list(map(float, cells))))
        except ValueError:  # as at the first word
            pass
    (kind,) = kinds if len(kinds) == 1 else (object,)
    if issubclass(kind, (np.number, np.bool_)):
        return read(np.array(cells))
    different: list[Cell] = []
    texts: dict[Any, int] = {}
    which = np.empty(len(cells), dtype=np.intp)
    large: list[int] = []
    bad: dict[str, list[int]] = {}
    for row, cell in enumerate(cells):
        is_text = type(cell) is str or type(cell) is bytes
        code = texts.get(cell) if is_text else None
        if code is None:
            code = len(different)
            try:
                different.append(cell_of(cell))
            except BadCells as found:
                bad.setdefault(found.what, []).append(row)
            if is_text:
                texts[cell] = code
            elif type(cell) is np.float32 and _EXACT_BELOW <= abs(float(cell)) < math.inf:
                large.append(row)
        which[row] = code
    for what, rows in bad.items():
        raise BadCells(what, rows, STORED)
    return Cells(len(cells), different=different, which=which, large=tuple(large))


def cell_of(cell: Any) -> Cell:
    """The meaning of a single cell."""
    kind = type(cell)
    if kind is str or kind is np.str_:
        return _of_text(str(cell))
    if kind is bytes or kind is np.bytes_:
        return _of_text(bytes(cell).decode("utf-8", "surrogateescape"))
    if kind in (int, float, bool, Decimal):
        return _of_number(cell)
    if cell is None or cell is np.ma.masked or kind.__name__ in ("NAType", "NaTType"):
        return None
    if kind in (dt.date, dt.datetime) or (
        kind.__name__ == "Timestamp" and isinstance(cell, dt.date)
    ):
        return _of_date(cell)
    if isinstance(cell, np.generic):
        if cell.dtype.kind == "M":
            if np.isnat(cell):
                return None
            ticks, factor = _ticks(np.asarray(cell).reshape(1))
            return Instant(int(ticks[0]) * factor, factor < _DAY)
        if cell.dtype.kind in "biu" or (cell.dtype.kind == "f" and cell.dtype.itemsize in (4, 8)):
            return _of_number(cell)
    raise BadCells(f"a cell of type {kind.__name__}")


def _of_number(cell: Any) -> float | None:
    try:
        number = float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except ValueError:  # a signalling nan
        return None
    return None if math.isnan(number) else number


def _of_text(text: str) -> Cell:
    text = _LINE_ENDS.sub("\n", text.strip())
    while text.endswith("\0"):
        text = text.rstrip("\0").rstrip()
    if text in WRITTEN_MISSING:
        return None
    truth = _TRUTH_VALUES.get(text.lower())
    number = _spelled_number(text) if truth is None else truth
    if number is None:
        return _of_iso(text) or text
    return None if math.isnan(number) else number


def _spelled_number(text: str) -> float | None:
    """The number that a text spells, perhaps as a complex one; None if it is none."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        number = complex(text) if text.endswith(("j", "j)")) else 1j
    except ValueError:
        return None
    return number.real if number.imag == 0.0 else None


def _of_iso(text: str) -> Instant | None:
    """The instant that a text states as ISO 8601 has it, as tools print dates; None for others."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    try:
        days = dt.date(int(year), int(month), int(day)).toordinal() - _EPOCH
        dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return None
    seconds = 60 * (60 * int(hour or 0) + int(minute or 0)) + int(second or 0)
    if sign is not None:
        offset = 60 * (60 * int(hours) + int(minutes or 0))
        seconds -= -offset if sign == "-" else offset
    digits = fraction or "0"
    if len(digits) > 9:  # a unit in which storages have hardly any date
        return _BEYOND_STORAGE
    nanoseconds = (days * 86_400 + seconds) * 10**9 + int(digits.ljust(9, "0"))
    return Instant(nanoseconds, len(digits) > 6)


def _of_date(cell: Any) -> Instant:
    """The instant of a date, a time, or a timestamp of pandas; times without a zone are UTC."""
    try:
        days = cell.toordinal() - _EPOCH
    except (NotImplementedError, OverflowError, ValueError):  # pandas, beyond the year 9999
        return _BEYOND_STORAGE
    if not isinstance(cell, dt.datetime):
        return Instant(days * _DAY)
    seconds = days * 86_400 + 60 * (60 * cell.hour + cell.minute) + cell.second
    offset = cell.utcoffset() or dt.timedelta(0)
    small = cell.microsecond - (offset // dt.timedelta(microseconds=1))
    return Instant(seconds * 10**9 + small * 1_000 + getattr(cell, "nanosecond", 0), True)


def _key(cell: Key) -> Key:
    """The key that a cell is recognised by: equal for all that another storage may make of it."""
    if isinstance(cell, float):
        return float(single(cell)) if abs(cell) < _EXACT_BELOW else cell
    if isinstance(cell, Instant):
        days, rest = divmod(cell.nanoseconds, _DAY)
        return Instant(cell.nanoseconds) if rest else float(days)
    return cell


def _positions_of_numbers(numbers: Array, known: Mapping[Key, int]) -> NDArray[np.intp]:
    found = np.full(numbers.size, -1, dtype=np.intp)
    declared = sorted((key, k) for key, k in known.items() if isinstance(key, float))
    if not declared:
        return found
    keys, at = (np.array(part) for part in zip(*declared, strict=True))
    rounded = np.where(np.abs(numbers) < _EXACT_BELOW, single(numbers), numbers)
    where = np.minimum(np.searchsorted(keys, rounded), keys.size - 1)
    return np.where(keys[where] == rounded, at[where], found)


def _number(cell: Cell) -> float:
    """The number of a cell; nan if missing, inf if it is none."""
    if _is_missing(cell):
        return math.nan
    return cell if isinstance(cell, float) else math.inf


def _is_missing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, str) and cell in MISSING)


def _is_far(cell: Cell) -> bool:
    """Whether a date is one that storages of nanoseconds cannot have."""
    return isinstance(cell, Instant) and abs(cell.nanoseconds) >= 2**63


def _is_timed(cell: Cell) -> bool:
    return isinstance(cell, Instant) and cell.timed


def _days(cell: Cell, format: str | None) -> float:
    """The days of a date; nan if missing, inf if it is none, -inf if it is far from today."""
    if _is_missing(cell):
        return math.nan
    if not isinstance(cell, Instant) and format is not None:
        cell = _in_format(cell, format)
    if not isinstance(cell, Instant):
        return math.inf
    if _is_far(cell):
        return -math.inf
    return float(_in_days(cell.nanoseconds))


def _in_days(nanoseconds: Any) -> Any:
    """Days, of whole ones and an exact rest, so that arrays and single cells round alike."""
    return nanoseconds // _DAY + nanoseconds % _DAY / _DAY


def _in_format(cell: Cell, format: str) -> Instant | None:
    is_number = isinstance(cell, float) and cell.is_integer()
    text = str(int(cell)) if is_number else str(cell)  # type: ignore[arg-type]
    try:
        found = dt.datetime.strptime(text, format)
    except ValueError:
        return None
    if is_number and found.strftime(format) != text:
        return None
    return _of_date(found)


def _remedy_of(column: Any, row: int) -> str | None:
    """A remedy for a cell that is no number."""
    cells = read(column)
    cell = cells.different[cells.which[row]] if cells.different else None
    if isinstance(cell, str) and re.fullmatch(r"[+-]?[\d.\s']*\d,\d+", cell):
        return "a number with a decimal point, 1.5 and not 1,5"
    return None


def _written_cell(cell: Any) -> str:
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, str):
        return "" if cell == "NaT" else cell.strip()
    is_nan = isinstance(cell, float) and math.isnan(cell)
    return (
        "" if is_nan or cell is None or type(cell).__name__ in ("NAType", "NaTType") else str(cell)
    )
