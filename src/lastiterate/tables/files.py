"""Files of tables (CSV, Parquet, arrays) by their endings; errors quote no cell."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import TextIOBase
from itertools import islice
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate._files import with_an_end
from lastiterate.errors import InvalidParameter, LastIterateError, MissingExtra
from lastiterate.run.serialise import unambiguous_json
from lastiterate.tables.cells import MISSING

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

_ROWS_AT_ONCE = 1 << 16
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_CSV_BLOCK_BYTES = 1 << 22  # bytes
_CSV_ROWS_AT_ONCE = 20_000  # in a block of the slow reader
_BEGINNING_BYTES = 1 << 16
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_BEGINNINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a spreadsheet or an archive"}
_SAMPLED_ROWS = 1_000  # rows in which a name is looked for


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
        file = _open_by_ending(path, delimiter)
        if not file.names or file.rows == 0:
            raise InvalidParameter("data", str(path), must_be="a file with columns and rows")
    return file


def _open_by_ending(path: Path, delimiter: str | None) -> TableFile:
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
        batches = self._file.iter_batches(
            batch_size=_ROWS_AT_ONCE, columns=list(kinds), use_threads=False
        )
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
        for first in range(0, self.rows, _ROWS_AT_ONCE):
            yield {name: self._columns[name][first : first + _ROWS_AT_ONCE] for name in kinds}

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


# CSV files, compressed or not, block by block: by pyarrow, or by Python's own, slower reader.
#
# The slower reader also explains errors, since pyarrow's messages quote cells, and reads on where
# one cell stops pyarrow.  So both have one grammar, or that cell would cut other rows differently:
# quotes count at the very beginning of a cell and are text elsewhere, also after a blank; a cell
# may continue after closing quotes; empty lines are no rows.  Quotes left open are refused.
#
# The first line has the names of the columns.  Names are published, so a row that stands there is
# refused.


class CsvFile:
    """A CSV file with a header."""

    rows = None  # unknown before reading

    def __init__(self, path: Path, *, delimiter: str | None = None) -> None:
        self.path = path
        names = [suffix.lower() for suffix in path.suffixes]
        self._compression = _COMPRESSED.get(names[-1])
        tabs = ".tsv" in names[-2:]
        self._delimiter = ("\t" if tabs else ",") if delimiter is None else delimiter
        if len(self._delimiter) != 1 or self._delimiter in '"\r\n\x00':
            must_be = "one character, such as ';'"
            raise InvalidParameter("delimiter", self._delimiter, must_be=must_be)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._header[0]

    def sample(self, count: int) -> Mapping[str, list[str]]:
        """The cells of the first rows."""
        return next(self._by_csv_reader(count), {name: [] for name in self.names})

    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The columns of these names, which hold numbers or text, a part of the rows at a time."""
        assert self.names  # raises for a file without names
        try:
            import pyarrow as pa
        except ImportError:
            yield from self._by_csv_reader(_CSV_ROWS_AT_ONCE, kinds)
            return
        given = 0
        try:
            for block in self._by_pyarrow(kinds):
                yield block
                given += len(next(iter(block.values())))
            return
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InvalidParameter):
                raise
        # The slow reader names the row, or reads what pyarrow does not.
        yield from self._continue_slowly(given, kinds)

    def _continue_slowly(self, given: int, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        for block in self._by_csv_reader(_CSV_ROWS_AT_ONCE, kinds):
            length = len(next(iter(block.values())))
            if given < length:
                yield {name: cells[given:] for name, cells in block.items()}
            given = max(given - length, 0)

    def _by_pyarrow(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        types = {"number": pa.float64(), "text": pa.string(), "date": pa.string()}
        names, lines = self._header
        reader = arrow.open_csv(
            pa.input_stream(str(self.path), compression=self._compression),
            read_options=arrow.ReadOptions(
                use_threads=False, block_size=_CSV_BLOCK_BYTES, column_names=names, skip_rows=lines
            ),
            parse_options=arrow.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                column_types={name: types[kind] for name, kind in kinds.items()},
                include_columns=list(kinds),
                null_values=[*MISSING, *(f" {mark}" for mark in MISSING)],
            ),
        )
        for batch in reader:
            if any(_has_nan(column) for column in batch.columns):
                raise ValueError("spellings of nan that only pyarrow recognises")
            if batch.num_rows:
                yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def _by_csv_reader(
        self, size: int, kinds: Mapping[str, str] | None = None
    ) -> Iterator[Mapping[str, list[str]]]:
        """All columns, or those of these names; others may hold any bytes."""
        names, _ = self._header
        used = [k for k, name in enumerate(names) if kinds is None or name in kinds]
        done = 0
        try:
            with self._text() as text:
                reader = _CsvRows(text, self._delimiter)
                next(reader)
                rows = (row for row in reader if row)
                while block := list(islice(rows, size)):
                    self._check_rows(block, len(names), used, done)
                    done += len(block)
                    yield {names[k]: [row[k] for row in block] for k in used}
        except csv.Error:
            must_be = "a readable CSV file"
            found = f"an invalid row after row {done:,}"
            raise InvalidParameter("data", must_be=must_be, found=found) from None

    def _check_rows(self, block: list[list[str]], width: int, used: list[int], done: int) -> None:
        for k, row in enumerate(block, start=done + 1):
            if len(row) != width:
                must_be = f"a file with as many cells in every row as names, {width}"
                found = f"{len(row)} cells in row {k:,}, the header not counted"
                raise InvalidParameter("data", must_be=must_be, found=found)
            if _has_other_bytes("".join(row[j] for j in used)):
                refuse_encoding(str(self.path), f"a byte that is no UTF-8 in row {k:,}")

    @cached_property
    def _header(self) -> tuple[tuple[str, ...], int]:
        """The names, and the number of lines of the header."""
        with self._bytes() as file:
            first = file.read(_BEGINNING_BYTES)
        check_bytes(str(self.path), first)
        with self._text() as text:
            reader = _CsvRows(text, self._delimiter)
            try:
                names = checked_names(str(self.path), next(reader, []))
                lines = reader.line_num
                sample = list(islice((row for row in reader if row), _SAMPLED_ROWS))
            except csv.Error:
                raise InvalidParameter(
                    "data", str(self.path), must_be="a readable CSV file"
                ) from None
        if _has_other_bytes("".join(names)):
            refuse_encoding(str(self.path), "a byte that is no UTF-8 in the first line")
        if not sample:
            raise InvalidParameter("data", str(self.path), must_be="a file with columns and rows")
        check_is_no_row(str(self.path), names, sample)
        return names, lines

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(
            self._bytes(), encoding="utf-8-sig", errors="surrogateescape", newline=""
        )

    def _bytes(self) -> IO[bytes]:
        opened: Any
        if self._compression is None:
            opened = self.path.open("rb")
        elif self._compression == "gzip":
            opened = gzip.GzipFile(self.path, "rb")
        else:
            try:
                import pyarrow as pa
            except ImportError:
                what = f"reading {self.path.suffix} files"
                raise MissingExtra(what, "pyarrow", extra="tables") from None
            opened = io.BufferedReader(
                pa.input_stream(str(self.path), compression=self._compression)
            )
        result: IO[bytes] = opened
        return result


def _has_other_bytes(text: str) -> bool:
    """Whether text has bytes that are no UTF-8, as `surrogateescape` encodes them."""
    return not text.isascii() and any("\udc80" <= one <= "\udcff" for one in text)


def _has_nan(column: Any) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    return pa.types.is_floating(column.type) and bool(compute.any(compute.is_nan(column)).as_py())


def check_bytes(path: str, first: bytes) -> None:
    """Raise unless the first bytes of a file are text in UTF-8."""
    found = next((what for mark, what in _BEGINNINGS.items() if first.startswith(mark)), None)
    if found is None and b"\x00" in first:
        found = "bytes of value 0, as in UTF-16"
    if found is not None:
        refuse_encoding(path, found)


def refuse_encoding(path: str, found: str) -> NoReturn:
    """Raise the error for text that is not UTF-8."""
    of = "UTF-16" if "UTF-16" in found else "WINDOWS-1252"
    must_be = (
        "a CSV file in UTF-8: in a spreadsheet save as CSV UTF-8, or convert the file "
        f"(iconv -f {of} -t UTF-8)"
    )
    raise InvalidParameter("data", must_be=must_be, found=f"{found} in {path}")


class _CsvRows:
    """Rows of text, by the grammar of pyarrow.

    Raises `csv.Error` where quotes stay open, which Python closes at the end.
    """

    def __init__(self, text: TextIOBase, delimiter: str) -> None:
        self._ended = False
        self._rows: Any = csv.reader(self._lines(text), delimiter=delimiter)

    @property
    def line_num(self) -> int:
        """The number of lines that were read."""
        return int(self._rows.line_num)

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        row: list[str] = next(self._rows)
        if self._ended:
            raise csv.Error("quotes that are not closed")
        return row

    def _lines(self, text: TextIOBase) -> Iterator[str]:
        yield from text
        self._ended = True


def checked_names(path: str, line: Sequence[str]) -> tuple[str, ...]:
    """The names in a first line; raises if it looks like a row."""
    names = tuple(name.strip() for name in line)
    if any(name.startswith('"') for name in names):
        must_be = 'without blanks before quotes, which are then text: write a,"b"'
        raise InvalidParameter("the first line", must_be=must_be, found="a blank before a quote")
    if not any(names):
        raise InvalidParameter("data", path, must_be="a file with columns and rows")
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        must_be = f"separated by commas, unless --delimiter is set (here: {other!r})"
        raise InvalidParameter("data", must_be=must_be, found=_DELIMITERS[other])
    if "" in names or (not _is_numbered(names) and any(map(_is_number, names))):
        _refuse_header(path, "a number or an empty cell")
    if len(set(names)) != len(names):
        must_be = "a file whose first line has different names for all columns"
        raise InvalidParameter("data", path, must_be=must_be)
    return names


def check_is_no_row(path: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raise if a name occurs again below itself, among others, as a value does.

    Where nothing else occurs, it is the name of an answer that some gave.
    """
    if _is_numbered(names):
        return
    for k, name in enumerate(names):
        below = {row[k].strip() for row in rows if k < len(row)} - MISSING
        if name in below and len(below) > 1:
            _refuse_header(path, "a first line with a value that occurs below")


def _refuse_header(path: str, found: str) -> NoReturn:
    must_be = f"the names of the columns, none of them a number: add such a line to {path}"
    raise InvalidParameter("the first line", must_be=must_be, found=found)


def _is_numbered(names: Sequence[str]) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


# Reading of JSON files, with errors in one line.


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
