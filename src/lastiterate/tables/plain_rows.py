"""Rows in whatever people keep them in, as an array of numbers: each cell by itself.

Tools store cells together, and one odd cell changes what the others are stored as: dates count in
the finest unit that one of them needs, and one text makes text of all numbers, with the digits of
their own precision.  So a frame is taken apart before its columns become one array, and each must
be one of numbers by its own type.  No message quotes a cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidType, MissingExtra

_NUMBER_KINDS = "biufc"  # kinds of numpy; complex ones are refused with the shape, later
_KIND_WORDS = {"M": "dates", "m": "durations", "V": "records"}
_KIND_WORDS |= dict.fromkeys("UST", "text, which is not a number")
_DATES = "numbers: count dates from a public date, in a unit of your choice"
_PLAIN = "numbers: PrivateSchema encodes text, dates and categories by publicly known values"
_OTHER_CELL = "a cell that is not a number (every argument must be no string but a number)"


def plain_rows(X: Any) -> Any:
    """The rows as an array of numbers, or as the sparse matrix or mapped file that they are.

    Raises
    ------
    InvalidType
        If a column or a cell is no number.
    """
    from scipy import sparse

    if sparse.issparse(X):
        kind: np.dtype[Any] = X.dtype  # type: ignore[attr-defined]
        _check_type("X", kind)
        return X
    if is_frame(X):
        return _of_frame(X)
    if np.ma.isMaskedArray(X) and np.ma.getmaskarray(X).any():
        raise InvalidType("X", must_be=_PLAIN, found="masked cells")
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    if array.dtype.kind == "O":
        return plain_cells("X", array)
    _check_type("X", array.dtype)
    return array


def validated(estimator: Any, X: Any, rows: Any, *, reset: bool = True, **limits: Any) -> Any:
    """The plain rows of X as scikit-learn checks them for an estimator, which keeps their names."""
    from sklearn.utils.validation import check_array, validate_data

    if not (is_frame(X) and hasattr(X, "shape")):
        return validate_data(estimator, rows, reset=reset, **limits)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return check_array(rows, estimator=estimator, input_name="X", **limits)


def plain_cells(name: str, cells: NDArray[Any]) -> NDArray[np.float64]:
    """Objects as numbers in double precision; nan where one is missing."""
    numbers = np.fromiter(map(_number, cells.flat), dtype=np.float64, count=cells.size)
    # Infinite numbers are numbers, too.
    if np.isinf(numbers).any() and not all(
        _is_number(one) or _is_missing(one) for one in cells.flat
    ):
        raise InvalidType(name, must_be=_PLAIN, found=_OTHER_CELL)
    return numbers.reshape(cells.shape)


def is_frame(X: Any) -> bool:
    """Whether the rows are columns, each with a type of its own."""
    if isinstance(X, np.ndarray):
        return False
    if _package(X):
        return len(getattr(X, "shape", ())) == 2
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "__dataframe__")


def _package(X: Any) -> str:
    known = ("pandas", "polars", "pyarrow")
    packages = (kind.__module__.partition(".")[0] for kind in type(X).__mro__)
    return next((one for one in packages if one in known), "")


def _of_frame(X: Any) -> Any:
    if _package(X) == "pandas":
        # The accessor raises AttributeError unless all columns are sparse.
        held = getattr(X, "sparse", None) if X.shape[1] else None
        if held is not None:
            for name, kind in X.dtypes.items():
                _check_type(_column_text(name), kind.subtype)
            return held.to_coo()
        columns = [_of_pandas(_column_text(name), column) for name, column in X.items()]
    elif _package(X) == "polars":
        columns = [_of_polars(_column_text(one.name), one) for one in X.get_columns()]
    else:
        columns = [_of_arrow(_column_text(name), column) for name, column in _arrow_columns(X)]
    if not columns:
        return np.empty(X.shape)
    single = all(column.dtype == np.float32 for column in columns)
    return np.column_stack([one.astype(np.float32 if single else np.float64) for one in columns])


def _column_text(name: Any) -> str:
    return f"the column {name!r} of X"


def _arrow_columns(X: Any) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow as pa
        from pyarrow import interchange
    except ImportError:
        raise MissingExtra("reading such a frame", "pyarrow", extra="tables") from None
    has_stream = hasattr(X, "__arrow_c_stream__")
    table = pa.table(X) if has_stream else interchange.from_dataframe(X)
    yield from zip(table.column_names, table.columns, strict=True)


def _of_pandas(name: str, column: Any) -> NDArray[Any]:
    kind = column.dtype
    if isinstance(kind, np.dtype):
        return _plain_column(name, column.to_numpy())
    if type(kind).__name__ == "SparseDtype":
        return _plain_column(name, np.asarray(column))
    # Types of pandas itself, which may have missing cells, and those of pyarrow.
    held = getattr(kind, "numpy_dtype", None)
    arrow = getattr(kind, "pyarrow_dtype", None)
    if arrow is not None:
        return _of_arrow(name, column.array.__arrow_array__())
    if not isinstance(held, np.dtype) or held.kind not in "biuf":
        raise _wrong_type(name, str(kind))
    single = np.float32 if held == np.float32 else np.float64
    return np.asarray(column.to_numpy(dtype=single, na_value=math.nan))


def _of_polars(name: str, column: Any) -> NDArray[Any]:
    kind = str(column.dtype)
    if kind == "Object":
        return plain_cells(name, np.fromiter(column.to_list(), dtype=object, count=len(column)))
    if not kind.startswith(("Int", "UInt", "Float", "Boolean")) or kind.endswith("128"):
        raise _wrong_type(name, kind)
    return _plain_column(name, column.to_numpy())


def _of_arrow(name: str, column: Any) -> NDArray[Any]:
    from pyarrow import types

    kind = column.type
    if types.is_boolean(kind):
        column = column.cast("uint8")
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        raise _wrong_type(name, str(kind))
    return _plain_column(name, np.asarray(column))


def _plain_column(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        return plain_cells(name, array)
    _check_type(name, array.dtype)
    if array.dtype.kind == "c":
        raise _wrong_type(name, "complex")
    if array.dtype == np.float16:  # tools make it of a column whose first cell has this type
        raise _wrong_type(name, "half precision, which has three digits")
    return array


def _check_type(name: str, kind: np.dtype[Any]) -> None:
    if kind.kind not in _NUMBER_KINDS:
        found = _KIND_WORDS.get(kind.kind, "other cells")
        raise InvalidType(name, must_be=_DATES if kind.kind in "Mm" else _PLAIN, found=found)


def _wrong_type(name: str, kind: str) -> InvalidType:
    """The error for a type; names of fields, categories and zones in it are not quoted."""
    kind = kind.partition("<")[0].partition("(")[0].partition("[")[0]
    is_date = kind.lower().startswith(("date", "time", "duration"))
    found = f"{'dates or durations' if is_date else 'cells'} of type {kind}"
    return InvalidType(name, must_be=_DATES if is_date else _PLAIN, found=found)


def _number(cell: Any) -> float:
    """The number that a cell is; nan if it is missing, infinite if it is none."""
    if not _is_number(cell):
        return math.nan if _is_missing(cell) else math.inf
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except ValueError:  # a signalling nan
        return math.nan


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (Real, Decimal, np.bool_)) and not isinstance(cell, np.timedelta64)


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is np.ma.masked or type(cell).__name__ == "NAType"
