"""Examples from a CSV, Parquet or npz file, by a public description of its columns.

A schema is JSON: for each column either {"values": [..]}, a public vocabulary, coded one-hot, or
{"range": [low, high]}, public ends that are mapped to -1 and 1 (and beyond which values are
clipped).  Columns that it does not mention are numbers, taken as they are; text without a
vocabulary is refused, since the values that occur are themselves private.
"""

import csv
import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate.cli.json_file import read_object
from lastiterate.errors import InvalidParameter, MissingExtra

Columns = dict[str, list[Any]]
Schema = dict[str, dict[str, list[Any]]]
_SCHEMA = 'JSON such as {"age": {"range": [0, 100]}, "job": {"values": ["a", "b"]}}'
# What readers raise of files that are not what they claim to be; RuntimeError of encrypted ones.
_DAMAGED = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    MemoryError,
    csv.Error,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Coding:
    """Which columns become which features, in order; all of it public."""

    columns: tuple[str, ...]
    schema: Schema

    def features(self, table: Columns) -> Array:
        """One row an example."""
        missing = [name for name in self.columns if name not in table]
        if missing:
            must_be = f"a file with columns {', '.join(self.columns)}"
            raise InvalidParameter("data", must_be=must_be, found=f"no {', '.join(missing)}")
        undescribed = [name for name in self.columns if name not in self.schema]
        text = [name for name in undescribed if not _are_numbers(table[name])]
        if text:
            must_be = (
                "described by --schema, with a public vocabulary as in "
                '{"%s": {"values": [..]}}, unless they have a number in every row'
            )
            found = f"text in {', '.join(text)}"
            raise InvalidParameter("columns", must_be=must_be % text[0], found=found)
        return np.column_stack([self._coded(name, table[name]) for name in self.columns])

    def _coded(self, name: str, cells: list[Any]) -> Array:
        rule = self.schema.get(name, {})
        if "values" in rule:
            known = {str(value): k for k, value in enumerate(rule["values"])}
            coded = np.zeros((len(cells), len(known)))
            for i, cell in enumerate(cells):
                if str(cell) in known:  # what the vocabulary lacks is all zeros
                    coded[i, known[str(cell)]] = 1.0
            return coded
        numbers = _numbers(name, cells)
        if "range" in rule:
            low, high = rule["range"]
            numbers = np.clip((2.0 * numbers - low - high) / (high - low), -1.0, 1.0)
        return numbers[:, np.newaxis]


def _are_numbers(cells: list[Any]) -> bool:
    try:
        return all(isinstance(float(cell), float) for cell in cells)
    except (TypeError, ValueError):
        return False


def _numbers(name: str, cells: list[Any]) -> Array:
    if not _are_numbers(cells):
        must_be = "numbers in every row, none left empty, as it has a range"
        raise InvalidParameter(f"column {name!r}", must_be=must_be, found="text")
    numbers = np.array([float(cell) for cell in cells])
    if not np.all(np.isfinite(numbers)):
        found = "a cell that is not"
        raise InvalidParameter(f"column {name!r}", must_be="finite numbers", found=found)
    return numbers


def read_schema(path: Path | None) -> Schema:
    """The description of the columns, checked."""
    if path is None:
        return {}
    return checked_schema(read_object(path, name="schema", must_be=_SCHEMA))


def checked_schema(schema: dict[str, Any]) -> Schema:
    """The same, or an error that says what is wrong with it."""
    for name, rule in schema.items():
        if not isinstance(rule, dict) or set(rule) not in ({"values"}, {"range"}):
            raise InvalidParameter(f"schema[{name!r}]", rule, must_be=_SCHEMA)
        entries = rule.get("values", rule.get("range"))
        if not isinstance(entries, list) or not entries:
            raise InvalidParameter(f"schema[{name!r}]", rule, must_be=_SCHEMA)
        if "range" in rule and not _is_range(entries):
            raise InvalidParameter(
                f"schema[{name!r}]", entries, must_be="[low, high], finite, with low < high"
            )
    return schema


def declared_labels(
    target: str, described: dict[str, list[Any]] | None, listed: str | None
) -> list[str]:
    """The values of the target, by its entry in the schema or by a list with commas."""
    if (described is None) == (listed is None):
        entry = json.dumps({target: {"values": ["yes", "no"]}})
        must_be = (
            "declared, since the labels are published: --classes yes,no, or in the schema, as in "
            f"{entry}"
        )
        found = "neither" if listed is None else "both"
        raise InvalidParameter("classes", must_be=must_be, found=found)
    values = listed.split(",") if listed is not None else (described or {}).get("values")
    if values is None:
        must_be = 'such as {"values": ["yes", "no"]}: only labels can be predicted, no numbers'
        raise InvalidParameter(f"schema[{target!r}]", described, must_be=must_be)
    labels = list(dict.fromkeys(str(value).strip() for value in values))
    if len(labels) < 2 or "" in labels:
        raise InvalidParameter("classes", labels, must_be="at least two labels, none of them empty")
    return labels


def _is_range(entries: list[Any]) -> bool:
    numbers = all(type(entry) in (int, float) for entry in entries)
    return len(entries) == 2 and numbers and -1e300 < entries[0] < entries[1] < 1e300


def read_table(path: Path) -> Columns:
    """The columns of a file, by name."""
    readers = {".csv": _read_csv, ".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise InvalidParameter("data", str(path), must_be="a .csv, .npz or .parquet file")
    try:
        table = readers[path.suffix](path)
    except InvalidParameter:
        raise
    except _DAMAGED:
        must_be = f"a readable {path.suffix} file"
        raise InvalidParameter("data", str(path), must_be=must_be) from None
    if not table or not all(table.values()):
        raise InvalidParameter("data", str(path), must_be="a file with columns and rows")
    return table


def _read_csv(path: Path) -> Columns:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file, skipinitialspace=True)
        names = next(rows, [])
        cells = [row for row in rows if row]
    if len(set(names)) != len(names):
        must_be = "a file whose first line has different names for all columns"
        raise InvalidParameter("data", str(path), must_be=must_be)
    numbered = [str(k) for k in range(len(names))]
    if names != numbered and any(_are_numbers([name]) for name in names):
        # Names are published, so a row must not be taken for them.
        must_be = "a file whose first line has the names of the columns, none of them a number"
        raise InvalidParameter("data", str(path), must_be=must_be)
    if any(len(row) != len(names) for row in cells):
        raise InvalidParameter("data", str(path), must_be="a file whose rows are equally long")
    return {name: [row[k] for row in cells] for k, name in enumerate(names)}


def _read_npz(path: Path) -> Columns:
    table: Columns = {}
    # A file opened here is closed even where it is no archive.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        for name in arrays.files:
            values: NDArray[Any] = arrays[name]
            if values.ndim == 2:
                table |= {f"{name}{k}": values[:, k].tolist() for k in range(values.shape[1])}
            else:
                table[name] = values.ravel().tolist()
    return table


def _read_parquet(path: Path) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("reading Parquet", "pyarrow", extra="parquet") from None
    columns: Columns = parquet.read_table(path).to_pydict()
    return columns
