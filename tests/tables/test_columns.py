"""Columns: no cell decides what others are, however a tool stores them; dates and their ranges."""

import datetime as dt
import json
import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSchema
from lastiterate.tables.cells import BadCells, cell_of, days_of
from lastiterate.tables.column_rules import rule_of
from lastiterate.tables.encoder import Encoder, skeleton
from lastiterate.tables.files import open_table
from tests.tables.storages import FILES, NORMAL, NUMPY, ODD, PYARROW, moves

AS_VALUES = {"values", "values, empty", "labels"}


def known(kind, at):
    """Storages that do not show what the cells were.

    Whole numbers that single precision rounds are refused where it is seen, and are two numbers in
    text and in double precision.  pyarrow, if told to promote types, computes decimals in single
    precision without rounding them correctly.
    """
    name, use = at
    if kind in ("large ints", "large single"):
        return use in AS_VALUES
    return kind == "decimals" and name == "tables"


SOME = ["text", "other bytes", "int", "float", "nan", "none", "single", "complex", "day"]
SOME += ["nanoseconds", "decimal"]
FEW = ["list", "objects", "array", "numpy U", "numpy S", "numpy f4", "numpy f8", "numpy M8[D]"]


def assert_still(kind, storages, odd, path, files=()):
    pytest.importorskip("pyarrow")
    replaced, between, count = moves(storages, NORMAL[kind], odd, path, files=files)
    assert {at for at in replaced | between if not known(kind, at)} == set()
    assert count > 0


@pytest.mark.parametrize("kind", NORMAL)
def test_one_cell_moves_no_other(kind, tmp_path):
    some = [ODD[name] for name in SOME]
    storages = {name: NUMPY[name] for name in FEW} | {
        name: PYARROW[name] for name in ("pyarrow", "as binary")
    }
    assert_still(kind, storages, some, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", NORMAL)
def test_no_cell_of_any_kind_moves_another(kind, tmp_path):
    assert_still(kind, NUMPY | PYARROW, ODD.values(), tmp_path)
    assert_still(kind, FILES, ODD.values(), tmp_path / "c", files=FILES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["ints", "floats", "text", "text of floats", "days"])
def test_either_reader_reads_the_same(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    storages = {"csv": FILES["csv"]}
    replaced, between, count = moves(
        storages, NORMAL[kind], ODD.values(), tmp_path / "c", files=FILES
    )
    assert count > 100
    assert replaced | between == set()


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\n", "\r\n\n", "\n\r"])
def test_line_ends_inside_a_cell_are_all_the_same(ends):
    """Blocks of a file may end between two characters of a line end."""
    assert cell_of(f"a{ends}b") == cell_of("a\nb")


YEAR = {"dates": ["2021-01-01", "2021-12-31"]}
STAY = {"days_between": ["in", "out"], "range": [0, 60]}


def rows(schema, **columns):
    return Encoder.of(schema, list(columns)).rows(columns)


def test_go_from_their_range_to_plus_and_minus_one():
    cells = ["2021-01-01", dt.date(2021, 12, 31), "2021-07-02", dt.datetime(2021, 7, 2),
             "1999-01-01"]  # fmt: skip
    assert rows({"a": YEAR}, a=cells).ravel().tolist() == [-1, 1, 0, 0, -1]
    days = np.array(["2021-01-01", "2021-07-02", "NaT"], dtype="M8[s]")
    filled = YEAR | {"missing": "2021-07-02", "indicator": True}
    assert rows({"a": filled}, a=days).tolist() == [[-1, 0], [0, 0], [0, 1]]
    assert Encoder.of({"a": filled}, ["a"]).column_kinds == {"a": "date"}


@pytest.mark.parametrize(
    "format, cells",
    [
        ("%d.%m.%Y", ["02.07.2021", "2.7.2021", "2021-07-02", "2021-07-02T00:00:00Z"]),
        ("%m/%d/%y", ["07/02/21", "2021-07-02 02:00+02:00"]),
        ("%Y%m%d", ["20210702", 20210702, 20210702.0]),
    ],
)
def test_a_format_of_text(format, cells):
    """Text as tools write dates is read in any case, since other cells may make text of them."""
    found = rows({"a": YEAR | {"format": format}}, a=cells)
    assert found.ravel().tolist() == [0.0] * len(cells)


@pytest.mark.parametrize("cell", [44197, "02.07.2021", "x", True, "2021-02-30", "9999-12-31", 2021])
def test_what_is_no_date(cell):
    with pytest.raises(InvalidParameter, match=r"column 'a' must be a date .* in row 2,"):
        rows({"a": YEAR}, a=["2021-01-01", cell])


def refuse_years(cells):
    rule = rule_of("on", {"dates": ["2021-01-01", "2024-12-31"], "format": "%d.%m.%Y"})
    with pytest.raises(BadCells) as refused:
        rule.encode(cells, np.zeros((2, 1)))
    assert refused.value.what == "a date before 1678 or after 2262"
    assert "between 1678 and 2262" in refused.value.remedy


def test_placeholders_for_no_date_are_told_the_years():
    for cells in (
        ["9999-12-31", "2021-01-05"],
        ["31.12.9999", "05.01.2021"],
        [dt.date(9999, 12, 31), dt.date(2021, 1, 5)],
        np.array(["0001-01-01", "2021-01-05"], dtype="M8[s]"),
    ):
        refuse_years(cells)


@pytest.mark.parametrize("day", ["9999-12-31", "12345-01-01"])
def test_placeholders_of_pandas_are(day):
    pd = pytest.importorskip("pandas")
    refuse_years(np.array([pd.Timestamp(np.datetime64(day, "s")), None], dtype=object))
    refuse_years(pd.Series([np.datetime64(day, "s"), None]))


def test_intervals_of_dates_are_refused_with_a_reason():
    for more in ({"bins": 3}, {"cuts": ["2022-01-01"]}, {"range": [0, 1]}, {"baseline": 0}):
        with pytest.raises(InvalidParameter, match="left out beside 'dates': a date is one number"):
            rule_of("on", {"dates": ["2021-01-01", "2024-12-31"]} | more)


def test_days_between():
    schema = {"in": "drop", "out": YEAR, "stay": STAY | {"missing": 30, "indicator": True}}
    encoder = Encoder.of(schema, ["in", "out"])
    assert encoder.names == ["out", "stay", "stay is missing"]
    assert encoder.column_kinds == {"out": "date", "in": "date"}
    out = ["2021-03-02", "2021-01-01", "2021-12-31"]
    table = {"in": ["2021-01-01", "2021-01-01", None], "out": out}
    assert encoder.rows(table)[:, 1:].tolist() == [[1, 0], [-1, 0], [0, 1]]
    bins = {"in": "drop", "out": "drop", "stay": STAY | {"bins": 2}}
    found = rows(bins, **{name: cells[:2] for name, cells in table.items()})
    assert found.tolist() == [[0, 1], [1, 0]]


def test_what_is_no_entry_and_no_difference():
    for entry in (
        {"dates": ["2021-01-01"]}, {"dates": ["2022-01-01", "2021-01-01"]}, {"dates": [1, 2]},
        {"dates": ["a", "b"]}, YEAR | {"missing": "2030-01-01"}, YEAR | {"indicator": True},
        YEAR | {"format": 3}, YEAR | {"format": "%d.%m."}, YEAR | {"format": "%d%m%Y"},
        YEAR | {"format": "%Y-%d-%m"}, YEAR | {"x": 1}, YEAR | {"range": [0, 1]},
    ):  # fmt: skip
        with pytest.raises(InvalidParameter, match=r"schema\['a'\]"):
            Encoder.of({"a": entry}, ["a"])
    for schema in (
        {"out": {"range": [0, 1]}, "stay": STAY},
        {"out": "drop", "stay": STAY | {"days_between": ["in", "else"]}},
        {"out": "drop", "stay": {"days_between": ["in", "out"]}},
        {"out": "drop", "stay": STAY | {"days_between": ["in", "in"]}},
        {"out": STAY},
    ):
        with pytest.raises(InvalidParameter, match=r"schema\['(stay|out)'\]"):
            Encoder.of({"in": "drop"} | schema, ["in", "out"])


def test_ranges_of_dates_are_pointed_to_their_entry():
    with pytest.raises(InvalidParameter, match=r'for dates \{"dates": \["2021-01-01"'):
        Encoder.of({"a": {"range": ["01.01.2021", "31.12.2024"]}}, ["a"])
    with pytest.raises(InvalidParameter, match=r'for dates \{"dates": \["2021-01-01"'):
        rows({"a": {"range": [0, 1]}}, a=np.array(["2021-01-01"], dtype="M8[D]"))


@pytest.mark.parametrize(
    "cells, entry",
    [
        (["2021-05-06", ""], {"dates": [None, None]}),
        (["06.05.2021", "31.12.2021"], {"dates": [None, None], "format": "%d.%m.%Y"}),
        (["06/05/2021", "07/08/2021"], {"dates": [None, None], "format": None}),
        (["06/05/2021", "31/08/2021"], {"dates": [None, None], "format": "%d/%m/%Y"}),
        (["20210506", "20210507"], {"range": [None, None]}),
        (["2021-05-06", "x"], {"values": []}),
    ],
)
def test_a_schema_to_fill_in_knows_them(cells, entry, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b", *(f"{cell},1" for cell in cells)]) + "\n")
    found = json.loads(skeleton(open_table(path)))
    assert found["a"] == entry
    if "values" not in entry:
        with pytest.raises(InvalidParameter, match="filled in"):
            PrivateSchema(found).fit({"a": [], "b": []})


def test_a_saved_pipeline_reads_the_same(tmp_path):
    rng = np.random.default_rng(0)
    start = np.array("2021-01-01", dtype="M8[D]") + rng.integers(0, 300, 400)
    table = {"in": start, "out": start + rng.integers(0, 60, 400), "n": np.zeros(400)}
    long = (table["out"] - start).astype(int) > 30
    schema = {"in": YEAR, "out": "drop", "n": "drop", "stay": STAY}
    pipeline = make_pipeline(PrivateSchema(schema), PrivateLogisticRegression(epsilon=8.0))
    pipeline.fit(table, long)
    lastiterate.save(pipeline, tmp_path / "model")
    again = lastiterate.load(tmp_path / "model")
    texts = {name: cells.astype(str) for name, cells in table.items()}
    np.testing.assert_array_equal(again.predict(texts), pipeline.predict(table))
    assert pipeline.score(table, long) > 0.9


def test_days_are_rounded_alike_in_every_storage():
    ticks = np.random.default_rng(0).integers(-(2**62), 2**62, 2_000)
    array = ticks.astype("M8[ns]")
    cells = np.fromiter([*array, "2020-01-01"], dtype=object, count=2_001)
    np.testing.assert_array_equal(days_of(array), days_of(cells)[:-1])
