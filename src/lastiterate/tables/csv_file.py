"""CSV files, compressed or not, block by block: by pyarrow, or slowly by Python's own reader.

The slow way is also how an error is explained: pyarrow's messages quote cells.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.tables.cells import MISSING
from lastiterate.tables.header import (
    check_bytes,
    check_is_no_row,
    checked_names,
    refuse_encoding,
    rows_of,
)

_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_BLOCK = 1 << 22  # bytes
_ROWS = 20_000  # in a block of the slow way
_BEGINNING = 1 << 16


class CsvFile:
    """A file of text with a line of names."""

    rows = None  # not known before it is read

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
        return next(self._slowly(count), {name: [] for name in self.names})

    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """The columns of these names, which hold numbers or text, a part of the rows at a time."""
        assert self.names  # so that a file without any is refused first
        try:
            import pyarrow as pa
        except ImportError:
            yield from self._slowly(_ROWS)
            return
        given = 0
        try:
            for block in self._fast(kinds):
                yield block
                given += len(next(iter(block.values())))
            return
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InvalidParameter):
                raise
        # Whatever it was, the slow way says which row, or reads what pyarrow does not.
        yield from self._after(given)

    def _after(self, given: int) -> Iterator[Mapping[str, Any]]:
        for block in self._slowly(_ROWS):
            length = len(next(iter(block.values())))
            if given < length:
                yield {name: cells[given:] for name, cells in block.items()}
            given = max(given - length, 0)

    def _fast(self, kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        types = {"number": pa.float64(), "text": pa.string()}
        names, lines = self._header
        reader = arrow.open_csv(
            pa.input_stream(str(self.path), compression=self._compression),
            read_options=arrow.ReadOptions(
                use_threads=False, block_size=_BLOCK, column_names=names, skip_rows=lines
            ),
            parse_options=arrow.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                column_types={name: types[kind] for name, kind in kinds.items()},
                include_columns=list(kinds),
                null_values=[*MISSING, *(f" {mark}" for mark in MISSING)],
            ),
        )
        for batch in reader:
            if any(_quoted_after_blank(column) for column in batch.columns):
                raise ValueError("quotes that only Python's reader takes for such")
            if batch.num_rows:
                yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def _slowly(self, size: int) -> Iterator[Mapping[str, list[str]]]:
        names, _ = self._header
        done = 0
        try:
            with self._text() as text:
                reader = rows_of(text, self._delimiter)
                next(reader)
                rows = (row for row in reader if row)
                while block := list(islice(rows, size)):
                    self._check(block, len(names), done)
                    done += len(block)
                    yield {name: [row[k] for row in block] for k, name in enumerate(names)}
        except csv.Error:
            must_be = "a readable CSV file"
            found = f"a row that is none, after row {done:,}"
            raise InvalidParameter("data", must_be=must_be, found=found) from None

    def _check(self, block: list[list[str]], width: int, done: int) -> None:
        for k, row in enumerate(block, start=done + 1):
            if len(row) != width:
                must_be = f"a file with as many cells in every row as names, {width}"
                found = f"{len(row)} cells in row {k:,}, the header not counted"
                raise InvalidParameter("data", must_be=must_be, found=found)
            if _has_other_bytes("".join(row)):
                refuse_encoding(str(self.path), f"a byte that is no UTF-8 in row {k:,}")

    @cached_property
    def _header(self) -> tuple[tuple[str, ...], int]:
        """The names, and how many lines they take."""
        with self._bytes() as file:
            first = file.read(_BEGINNING)
        check_bytes(str(self.path), first)
        with self._text() as text:
            reader = rows_of(text, self._delimiter)
            try:
                names = checked_names(str(self.path), next(reader, []), self._delimiter)
                lines = reader.line_num
                sample = list(islice((row for row in reader if row), 1_000))
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
    """Whether it has what `surrogateescape` makes of bytes that are no UTF-8."""
    return not text.isascii() and any("\udc80" <= one <= "\udcff" for one in text)


def _quoted_after_blank(column: Any) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_string(column.type):
        return False
    quoted = compute.starts_with(compute.utf8_ltrim_whitespace(column), '"')
    return bool(compute.any(quoted).as_py())
