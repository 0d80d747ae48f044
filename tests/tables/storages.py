"""Columns of the same cells in many storages, of which one odd cell decides.

A storage takes the cells as a list, as a tool is given them, or raises.  A use says what is made of
all cells but the last.
"""

import csv
import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import _checked_weights
from lastiterate.linear_model.inputs import as_column, numbers_in, positions_of
from lastiterate.tables.cells import BadCells
from lastiterate.tables.column_rules import rule_of
from lastiterate.tables.encoder import Encoder, encode_file
from lastiterate.tables.files import open_table

ZONE = dt.timezone(dt.timedelta(hours=2))
DAY, OTHER_DAY = dt.date(2021, 1, 1), dt.date(2021, 3, 4)
TIME, OTHER_TIME = dt.datetime(2021, 1, 1, 5, 30), dt.datetime(2021, 3, 4, 0, 0, 1)


def instants(unit):
    return [np.datetime64(one, unit) for one in ("2021-01-01", "2021-03-04")]


# Two cells that take turns, and how they are declared as values.
NORMAL = {
    "ints": ([1, 2], ["1", "2.0"]),
    "large ints": ([2**53 + 1, 123_456_789], [str(2**53 + 1), "123456789"]),
    "truths": ([True, False], ["true", "0"]),
    "floats": ([0.1, 0.7], ["0.1", "0.7"]),
    "whole floats": ([1.0, 2.0], ["1", "2"]),
    "single": ([np.float32(0.1), np.float32(0.7)], ["0.1", "0.7"]),
    "large single": ([np.float32(123_456_792), np.float32(2e7)], ["123456792", "2e7"]),
    "bytes of numpy": ([np.bytes_(b"a"), np.bytes_(b"b")], ["a", "b"]),
    "decimals": ([Decimal("0.10"), Decimal("5000000.25")], ["0.1", "5000000.25"]),
    "text": (["a", "\u00e9"], ["a", "\u00e9"]),
    "padded text": ([" a ", "b"], ["a", "b"]),
    "zeros at the end": (["a\0", "b"], ["a", "b"]),
    "text of ints": (["01", "2"], ["1", "2"]),
    "text of floats": (["0.1", "7e-1"], ["0.1", "0.7"]),
    "bytes": ([b"a", "\u00e9".encode()], ["a", "\u00e9"]),
    "empty": (["a", None], ["a", "b"]),
    "not numbers": ([1.0, float("nan")], ["1", "2"]),
    "days": ([DAY, OTHER_DAY], ["2021-01-01", "2021-03-04"]),
    "times": ([TIME, OTHER_TIME], ["2021-01-01T05:30", "2021-03-04 00:00:01"]),
    "midnights": ([dt.datetime(2021, 1, 1), dt.datetime(2021, 3, 4)], ["2021-01-01", "2021-03-04"]),
    "zones": (
        [TIME.replace(tzinfo=ZONE), OTHER_TIME.replace(tzinfo=dt.timezone.utc)],  # noqa: UP017
        ["2021-01-01T03:30Z", "2021-03-04T00:00:01"],
    ),
    **{
        f"M8[{unit}]": (instants(unit), ["2021-01-01", "2021-03-04"])
        for unit in ("D", "h", "s", "us", "ns")
    },
    "far days": ([dt.date(2021, 1, 1), dt.date(9999, 12, 31)], ["2021-01-01", "9999-12-31"]),
    "text of days": (["2021-01-01", "2021-03-04"], ["2021-01-01", "2021-03-04"]),
    "complex": ([1 + 0j, 2 + 0j], ["1", "2"]),
    "durations": ([dt.timedelta(1), dt.timedelta(2)], ["1", "2"]),
}
ODD = {
    "text": "x",
    "text of a number": "0.25",
    "long text": "x" * 40,
    "bytes": b"x",
    "other bytes": b"\xff",
    "int": 7,
    "large int": 2**60 + 1,
    "huge int": 10**400,
    "float": 0.3,
    "infinite": float("inf"),
    "nan": float("nan"),
    "none": None,
    "true": True,
    "single": np.float32(0.3),
    "half": np.float16(0.3),
    "complex": 1 + 2j,
    "day": dt.date(2020, 2, 2),
    "time": dt.datetime(2020, 2, 2, 7, 8, 9, 123456),
    "zone": dt.datetime(2020, 2, 2, 7, tzinfo=ZONE),
    "nanoseconds": np.datetime64("2020-02-02T07:08:09.123456789"),
    "picoseconds": np.datetime64("1970-01-02", "ps"),
    "seconds": np.datetime64("2020-02-02", "s"),
    "year": np.datetime64("2020", "Y"),
    "duration": dt.timedelta(3),
    "clock": dt.time(7),
    "decimal": Decimal("1.5"),
    "list": [1],
    "dictionary": {"a": 1},
    "object": object(),
    "text of a day": "2020-02-02",
    "unreadable day": "2020-02-31",
}
COUNT = 6


def cells_of(normal, odd=()):
    """The normal cells by turns, with an odd one at the end, if there is one."""
    turns = list(itertools.islice(itertools.cycle(normal), COUNT))
    return turns + list(odd)


def of_base(kind):
    """A column of numpy of this type that another cell is put at the end of."""

    def stored(cells):
        return np.concatenate([np.array(cells[:COUNT]).astype(kind), np.array(cells[COUNT:])])

    return stored


def as_objects(cells):
    return np.fromiter(cells, dtype=object, count=len(cells))


KINDS = ["U", "S", "O", "f4", "f8", "i8", "i4", "u8", "b", "m8[s]", "c16"]
KINDS += [f"M8[{unit}]" for unit in ("D", "W", "h", "m", "s", "ms", "us", "ns")]
NUMPY = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "objects": as_objects,
    "array as text": lambda cells: np.array(cells).astype(str),
    "array as bytes": lambda cells: np.array(cells).astype("S"),
    "masked": lambda cells: np.ma.array(np.array(cells), mask=[False] * len(cells)),
    **{f"numpy {kind}": of_base(kind) for kind in KINDS},
}


def of_tables(cells):
    """What pyarrow makes of two tables, one below the other."""
    import pyarrow as pa

    tables = [pa.table({"c": arrow_of(one)}) for one in (cells[:COUNT], cells[COUNT:])]
    return pa.concat_tables(tables, promote_options="permissive")["c"]


def arrow_of(cells):
    """An array of pyarrow; it may crash where a date of numpy is among others."""
    import pyarrow as pa

    refuse_mixed(cells)
    return pa.array(cells)


def refuse_mixed(cells):
    kinds = {type(cell) for cell in cells}
    if np.datetime64 in kinds and len(kinds) > 1:
        raise TypeError


def arrow(*kinds):
    def stored(cells):
        import pyarrow as pa

        column = arrow_of(cells)
        for kind in kinds:
            column = column.cast(getattr(pa, kind)())
        return column

    return stored


def encoded(cells):
    return arrow_of(cells).dictionary_encode()


def chunks(cells):
    import pyarrow as pa

    whole = arrow_of(cells)
    return pa.chunked_array([whole[:3], whole[3:]])


def parquet(cells, path):
    import pyarrow as pa
    from pyarrow import parquet as files

    file = path.with_suffix(".parquet")
    files.write_table(pa.table({"c": arrow_of(cells)}), file)
    return file


PYARROW = {
    "pyarrow": arrow(),
    "tables": of_tables,
    "dictionary": encoded,
    "chunks": chunks,
    "as strings": arrow("string"),
    "as large strings": arrow("large_string"),
    "as views": arrow("string_view"),
    "as binary": arrow("binary"),
    "as binary views": arrow("binary", "binary_view"),
    "as text twice": arrow("string", "large_binary"),
    "in single precision": arrow("float32"),
    "in dates": arrow("date32"),
}


def text_file(cells, path):
    """A CSV file as Python writes it."""
    file = path.with_suffix(".csv")
    with file.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([["c", "n"], *([cell, 0] for cell in cells)])
    return file


FILES = {"csv": text_file, "parquet": parquet}

SCHEMAS = {
    "range": {"range": [0.1, 300.7]},
    "cuts": {"cuts": [0.1, 0.7, 1.0, 2.0, 2e7]},
    "as it is": "as it is",
    "dates": {"dates": ["2021-01-01", "2021-06-01"], "missing": "2021-02-01"},
    "dates in a format": {"dates": ["2021-01-01", "2021-06-01"], "format": "%Y%m%d"},
    "missing": {"range": [0.1, 0.7], "missing": 0.3, "indicator": True},
}


def in_table(schema):
    def use(column):
        if isinstance(column, Path):
            table = open_table(column)
            entry = {"c": schema, **({"n": "as it is"} if "n" in table.names else {})}
            return encode_file(table, Encoder.of(entry, table.names), {}).rows
        rule = rule_of("c", schema)
        out = np.zeros((len(column), len(rule.names("c"))))
        rule.encode(column, out)
        return out

    return use


def uses_of(declared):
    """What becomes of a column, by how it is used."""
    labels = np.array(declared)
    return {
        "values": in_table({"values": declared}),
        "values, empty": in_table({"values": declared, "missing": declared[1]}),
        **{name: in_table(schema) for name, schema in SCHEMAS.items()},
        "labels": lambda y: positions_of(as_column(y), labels),
        "targets": lambda y: numbers_in(as_column(y)),
        "errors": lambda y: numbers_in(as_column(y), finite=False),
        "weights": lambda w: _checked_weights(w, len(w)),
    }


REFUSED = (InvalidParameter, BadCells)


def moves(storages, normal, odd, path, *, files=()):
    """Storages and uses in which one odd cell moved others, and how many columns were read.

    First those in which others moved when the odd cell came, then those in which they differ
    between two odd cells, since either column may be the other with one row replaced.
    """
    replaced, between, count = set(), set(), 0
    cells, declared = normal
    uses = uses_of(declared)
    for name, store in storages.items():
        found = {use: [] for use in uses}
        for each in [(), *((one,) for one in odd)]:
            last = each or (cells[0],)
            try:
                given = cells_of(cells, last)
                column = store(given, path) if name in files else store(given)
            except Exception:  # the tool's own refusal
                continue
            for use, read in uses.items():
                plain = not each
                if isinstance(column, Path) and use in ("labels", "targets", "errors", "weights"):
                    continue
                count += 1
                try:
                    others = np.nan_to_num(read(column)[:COUNT].astype(np.float64))
                except REFUSED:
                    continue
                found[use].append((plain, others))
        for use, results in found.items():
            if any(not np.array_equal(one, results[0][1]) for _, one in results):
                (replaced if results[0][0] else between).add((name, use))
    return replaced, between, count
