"""The rows of a file as features, encoded block by block, in memory or in a mapped file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import length_of
from lastiterate.tables.encoder import Encoder, missing_columns_text
from lastiterate.tables.table_files import TableFile, readable

# Training holds a second copy, in the order of its batches.
_COPIES = 2
ColumnReader = Callable[[Any, int], Any]  # of a column, and how many rows came before


class Sink(Protocol):
    """A store that encoded rows are written to."""

    def more(self, count: int) -> NDArray[Any]: ...
    def keep(self) -> None: ...
    def all(self) -> NDArray[Any]: ...


class InMemory:
    """An array that grows in place."""

    def __init__(self, width: int, dtype: Any) -> None:
        self._rows = np.empty((0, width), dtype=dtype)
        self._most = available_memory() / _COPIES

    def check(self, rows: int) -> None:
        """Raise unless this many rows fit into memory."""
        size = rows * self._rows.shape[1] * self._rows.itemsize
        if size > self._most:
            must_be = (
                f"at most {self._most / 1e9:.3g} GB once encoded, for which there is memory; "
                "--mapped FOLDER keeps the rows in a scratch file there instead"
            )
            raise InvalidParameter("data", must_be=must_be, found=f"{size / 1e9:.3g} GB or more")

    def more(self, count: int) -> NDArray[Any]:
        """New rows at the end, to be filled."""
        before, width = self._rows.shape
        self.check(before + count)
        self._rows.resize((before + count, width), refcheck=False)
        return self._rows[before:]

    def keep(self) -> None:
        """Do nothing: rows are filled in place."""

    def all(self) -> NDArray[Any]:
        return self._rows


class InFile:
    """A file of plain numbers, for `numpy.memmap`."""

    def __init__(self, path: Path, width: int, dtype: Any) -> None:
        self._path, self._width, self._dtype = path, width, np.dtype(dtype)
        self._block = np.empty((0, width), dtype=dtype)
        self._count = 0
        path.open("xb").close()  # never in the place of another

    def more(self, count: int) -> NDArray[Any]:
        """New rows, to be filled."""
        self._block = np.empty((count, self._width), dtype=self._dtype)
        return self._block

    def keep(self) -> None:
        """Append the rows that were filled to the file."""
        with self._path.open("ab") as file:
            self._block.tofile(file)
        self._count += len(self._block)

    def all(self) -> NDArray[Any]:
        shape = (self._count, self._width)
        return np.memmap(self._path, dtype=self._dtype, mode="r", shape=shape)


@dataclass(frozen=True)
class EncodedTable:
    """The encoded rows of a table, and its other columns."""

    rows: NDArray[Any]
    other_columns: dict[str, Any]


def encode_file(
    file: TableFile,
    encoder: Encoder,
    other_columns: Mapping[str, tuple[str, ColumnReader]],
    *,
    dtype: Any = np.float64,
    mapped: Path | None = None,
) -> EncodedTable:
    """The features of a file, and its other columns, each read by its type and function."""
    kinds = encoder.column_kinds | {name: kind for name, (kind, _) in other_columns.items()}
    sink: Sink
    if mapped is None:
        sink = memory = InMemory(encoder.width, dtype)
        memory.check(file.rows or 0)
    else:
        sink = InFile(mapped, encoder.width, dtype)
    parts: dict[str, list[Any]] = {name: [] for name in other_columns}
    try:
        for before, count, block in numbered_blocks(file, kinds):
            encoder.encode(block, sink.more(count), before=before)
            sink.keep()
            for name, (_, make) in other_columns.items():
                parts[name].append(make(block[name], before))
    except BaseException:
        if mapped is not None:
            mapped.unlink(missing_ok=True)
        raise
    return EncodedTable(sink.all(), {name: np.concatenate(part) for name, part in parts.items()})


def numbered_blocks(
    file: TableFile, kinds: Mapping[str, str]
) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Blocks of these columns, each with the number of rows before it and in it."""
    absent = [name for name in kinds if name not in file.names]
    if absent:
        must_be = f"a table with columns {', '.join(kinds)}"
        found = missing_columns_text(absent, file.names)
        raise InvalidParameter("data", must_be=must_be, found=found)
    done = 0
    with readable(file.path):
        for block in file.blocks(kinds):
            count = length_of(next(iter(block.values())))
            yield done, count, block
            done += count


def available_memory() -> float:
    """The bytes of memory that are available; inf if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
        return 1024.0 * int(found)
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
