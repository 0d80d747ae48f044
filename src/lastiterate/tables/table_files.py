"""Files of tables (CSV, Parquet, arrays) by their endings; errors quote no cell."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidParameter, LastIterateError, MissingExtra
from lastiterate.tables.csv_file import CsvFile

ENDINGS = ".csv (or .csv.gz, .csv.zst, .csv.bz2, .tsv), .parquet or .npz"
# Errors of readers for damaged files; RuntimeError is for encrypted ones.
_DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    NotImplementedError,
    EOFError,
    csv.Error,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class TableFile(Protocol):
    """A table in a file: columns by name, read in blocks of rows."""

    @property
    def path(self) -> Path: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> int | None: ...
    def sample(self, count: int) -> Mapping[str, Any]: ...
    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]: ...


def open_table(path: Path, *, delimiter: str | None = None) -> TableFile:
    """The table in a file; its names are checked."""
    with readable(path):
        file = _opened(path, delimiter)
        if not file.names or file.rows == 0:
            raise InvalidParameter("data", str(path), must_be="a file with columns and rows")
    return file


def _opened(path: Path, delimiter: str | None) -> TableFile:
    endings = [suffix.lower() for suffix in path.suffixes[-2:]]
    if endings[-1:] in ([".parquet"], [".npz"]):
        path.open("rb").close()  # raises FileNotFoundError
        return ParquetFile(path) if endings[-1] == ".parquet" else NpzFile(path)
    plain = endings[-1:] in ([".csv"], [".tsv"])
    packed = endings[:1] in ([".csv"], [".tsv"]) and endings[-1] in (".gz", ".zst", ".bz2")
    if plain or packed:
        return CsvFile(path, delimiter=delimiter)
    sheet = endings[-1:] and endings[-1] in (".xlsx", ".xls", ".ods")
    saved = ": save the sheet as CSV UTF-8" if sheet else ""
    raise InvalidParameter("data", str(path), must_be=f"a file that ends in {ENDINGS}{saved}")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A context in which errors of readers, which may quote cells, become one that does not."""
    try:
        yield
    except LastIterateError:
        raise
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except MemoryError:
        must_be = (
            "a file whose blocks of rows fit into memory: let this process have more, or write it "
            "with smaller row groups; if all rows together are too many, --mapped FOLDER keeps "
            "them in a file"
        )
        raise InvalidParameter("data", must_be=must_be, found=f"{path}, too large") from None
    except (*_DAMAGED, OSError):
        must_be = f"a readable {''.join(path.suffixes[-2:])} file"
        raise InvalidParameter("data", str(path), must_be=must_be) from None


_ROWS = 1 << 16


class ParquetFile:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import parquet
        except ImportError:
            raise MissingExtra("reading Parquet", "pyarrow", extra="tables") from None
        self.path = path
        self._file = parquet.ParquetFile(path)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return unique_names(self.path, self._file.schema_arrow.names)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._file.metadata.num_rows)

    def sample(self, count: int) -> Mapping[str, Any]:
        """The cells of the first rows."""
        batch = next(self._file.iter_batches(batch_size=count))
        return dict(zip(batch.schema.names, batch.columns, strict=True))

    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The columns of these names, a part of the rows at a time."""
        batches = self._file.iter_batches(batch_size=_ROWS, columns=list(kinds), use_threads=False)
        for batch in batches:
            yield dict(zip(batch.schema.names, batch.columns, strict=True))


class NpzFile:
    """Arrays in an archive; a two-dimensional array is several columns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return unique_names(self.path, list(self._columns))

    @property
    def rows(self) -> int:
        """The number of rows."""
        lengths = {column.size for column in self._columns.values()}
        if len(lengths) != 1 or 0 in lengths:
            must_be = "a file with columns of the same length, and rows"
            raise InvalidParameter("data", str(self.path), must_be=must_be)
        return lengths.pop()

    def sample(self, count: int) -> Mapping[str, Any]:
        """The cells of the first rows."""
        return {name: column[:count] for name, column in self._columns.items()}

    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The columns of these names."""
        for first in range(0, self.rows, _ROWS):
            yield {name: self._columns[name][first : first + _ROWS] for name in kinds}

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        table: dict[str, NDArray[Any]] = {}
        # A file opened here is closed even where it is no archive.
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                values: NDArray[Any] = arrays[name]
                if values.ndim == 2:
                    table |= {f"{name}{k}": values[:, k] for k in range(values.shape[1])}
                else:
                    table[name] = values.ravel()
        return table


def unique_names(path: Path, names: list[str]) -> tuple[str, ...]:
    """The names; raises if two columns have the same."""
    if len(set(names)) != len(names):
        must_be = "a file with different names for all columns"
        raise InvalidParameter("data", str(path), must_be=must_be)
    return tuple(names)
