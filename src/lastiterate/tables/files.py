"""Files of tables, by their endings; whatever is wrong with one is said without a cell of it."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from lastiterate.errors import InvalidParameter, LastIterateError
from lastiterate.tables.binary_files import NpzFile, ParquetFile
from lastiterate.tables.csv_file import CsvFile

ENDINGS = ".csv (or .csv.gz, .csv.zst, .csv.bz2, .tsv), .parquet or .npz"
# What readers raise of files that are not what they claim to be; RuntimeError of encrypted ones.
_DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    NotImplementedError,
    EOFError,
    MemoryError,
    csv.Error,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class TableFile(Protocol):
    """Columns by name, a part of the rows at a time."""

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
        path.open("rb").close()  # so that a missing file is said to be missing
        return ParquetFile(path) if endings[-1] == ".parquet" else NpzFile(path)
    plain = endings[-1:] in ([".csv"], [".tsv"])
    packed = endings[:1] in ([".csv"], [".tsv"]) and endings[-1] in (".gz", ".zst", ".bz2")
    if plain or packed:
        return CsvFile(path, delimiter=delimiter)
    raise InvalidParameter("data", str(path), must_be=f"a file that ends in {ENDINGS}")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Errors of readers, which quote what they read, become one that does not."""
    try:
        yield
    except LastIterateError:
        raise
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (*_DAMAGED, OSError):
        must_be = f"a readable {''.join(path.suffixes[-2:])} file"
        raise InvalidParameter("data", str(path), must_be=must_be) from None
