"""No cell decides what others are, in columns of pandas and polars."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.tables.storages import COUNT, NORMAL, ODD, moves, refuse_mixed
from tests.tables.test_columns import SOME, known


def as_dates(column):
    """What is no date becomes missing; of numbers, pandas would make nanoseconds."""
    if pd.api.types.is_numeric_dtype(column) or not isinstance(column[0], (str, dt.date)):
        raise TypeError
    return pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")


def of_arrow(cells):
    refuse_mixed(cells)
    return pd.Series(cells).convert_dtypes(dtype_backend="pyarrow")


PANDAS = {
    "series": pd.Series,
    "objects": lambda cells: pd.Series(cells, dtype=object),
    "text": lambda cells: pd.Series(cells).astype(str),
    "strings": lambda cells: pd.Series(cells).astype("string"),
    "categories": lambda cells: pd.Series(cells).astype("category"),
    "nullable": lambda cells: pd.Series(cells).convert_dtypes(),
    "of arrow": lambda cells: of_arrow(cells),
    "two frames": lambda cells: pd.concat([pd.Series(cells[:COUNT]), pd.Series(cells[COUNT:])]),
    "read as dates": lambda cells: as_dates(pd.Series(cells)),
    "in a zone": lambda cells: pd.Series(pd.to_datetime(cells)).dt.tz_localize("Europe/Berlin"),
    "single": lambda cells: pd.Series(cells).astype("Float32"),
    "index": pd.Index,
}


def by_polars(*kinds):
    def stored(cells):
        column = pl.Series([plain(cell) for cell in cells], strict=False)
        if kinds and column.dtype.is_nested():
            raise TypeError
        for kind in kinds:
            if kind == pl.Datetime and not column.dtype.is_temporal():
                raise TypeError
            column = column.cast(kind)
        return column

    return stored


def plain(cell):
    """Polars has no cells of numpy."""
    if isinstance(cell, np.datetime64):
        raise TypeError
    return cell.item() if isinstance(cell, np.bytes_) else cell


POLARS = {
    "series": by_polars(),
    "text": by_polars(pl.String),
    "categories": by_polars(pl.String, pl.Categorical),
    "nanoseconds": by_polars(pl.Datetime("ns")),
    "two series": lambda cells: pl.concat(
        [pl.DataFrame({"c": one}) for one in (cells[:COUNT], cells[COUNT:])], how="vertical_relaxed"
    )["c"],
}


def pandas_file(cells, path):
    refuse_mixed(cells)
    file = path.with_suffix(".parquet")
    pd.DataFrame({"c": cells}).to_parquet(file)
    return file


def pandas_csv(cells, path):
    file = path.with_suffix(".csv")
    pd.DataFrame({"c": cells, "n": 0}).to_csv(file, index=False)
    return file


def read_again(cells, path):
    return pd.read_csv(pandas_csv(cells, path))["c"]


def polars_file(cells, path):
    file = path.with_suffix(".parquet")
    by_polars()(cells).to_frame("c").write_parquet(file)
    return file


FILES = {"parquet": pandas_file, "csv": pandas_csv, "read csv": read_again, "polars": polars_file}


def known_between(kind, at):
    """What polars, if it may, makes of whole columns beside a cell: text or numbers."""
    name, _ = at
    if kind == "durations":
        return name in ("series", "text", "categories", "polars")
    return name == "two series" and kind in ("times", "midnights", "zones", "M8[ns]")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", NORMAL)
@pytest.mark.parametrize("tool", ["pandas", "polars", "files"])
def test_one_cell_moves_no_other(tool, kind, tmp_path):
    storages = {"pandas": PANDAS, "polars": POLARS, "files": FILES}[tool]
    files = FILES if tool == "files" else ()
    replaced, between, count = moves(
        storages, NORMAL[kind], ODD.values(), tmp_path / "c", files=files
    )
    assert {at for at in replaced if not known(kind, at)} == set()
    assert {at for at in between if not (known(kind, at) or known_between(kind, at))} == set()
    assert count > 0 or kind.startswith("M8")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["ints", "single", "text", "days", "zones"])
def test_some_cells_move_no_other(kind, tmp_path):
    odd = [ODD[name] for name in SOME]
    storages = {f"pandas {name}": PANDAS[name] for name in ("series", "categories", "two frames")}
    storages |= {f"polars {name}": POLARS[name] for name in ("series", "text")}
    replaced, between, _ = moves(storages, NORMAL[kind], odd, tmp_path)
    assert replaced | between == set()
