"""Parquet files, block by block, and archives of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidParameter, MissingExtra

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
        return different(self.path, self._file.schema_arrow.names)

    @property
    def rows(self) -> int:
        """How many there are."""
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
    """Arrays in an archive; one of two dimensions is as many columns as it has."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return different(self.path, list(self._columns))

    @property
    def rows(self) -> int:
        """How many there are."""
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


def different(path: Path, names: list[str]) -> tuple[str, ...]:
    """The names, if no two columns have the same."""
    if len(set(names)) != len(names):
        must_be = "a file with different names for all columns"
        raise InvalidParameter("data", str(path), must_be=must_be)
    return tuple(names)
