"""The table of short steps: complete, true where it is looked at, and what the page shows."""

import csv
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.docs.pages import ROOT

TABLE = ROOT / "docs" / "scoreboard_short_steps.csv"


@pytest.fixture
def short_steps(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import short_steps

    return short_steps


@pytest.fixture
def rows():
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def named(short_steps, row):
    return tuple(row[name] for name in short_steps.KEY)


def test_every_cell_is_there_and_no_certificate_is_below_a_lower_bound(short_steps, rows):
    every = dict.fromkeys(tuple(map(str, key)) for key in short_steps.cells())
    assert [named(short_steps, row) for row in rows] == list(every)
    for row in rows:
        assert float(row["lower_bound"]) <= float(row["certified"])


@pytest.mark.parametrize("length", [0.13, 1.6])
@pytest.mark.parametrize("rule", ["cyclic", "shuffled-once"])
def test_a_row_is_what_is_computed(short_steps, rows, rule, length):
    key = (rule, "zero-out", 0.0, length, 20, 100)
    row = next(one for one in rows if named(short_steps, one) == tuple(map(str, key)))
    found = short_steps.computed(key)
    assert found["bound"] == row["bound"]
    for name in ("certified", "lower_bound"):
        assert float(found[name]) == pytest.approx(float(row[name]), rel=1e-3)


def test_the_page_is_written_from_the_table(short_steps, rows):
    assert (ROOT / "docs" / "scoreboard.md").read_text().endswith(short_steps.page(rows))


def test_only_missing_and_named_cells_are_computed(short_steps, rows, tmp_path, monkeypatch):
    """An interrupted run goes on where it stopped."""
    keys = [(rule, "zero-out", 0.0, 0.13, 20, 1) for rule in ("cyclic", "poisson")]
    monkeypatch.setattr(short_steps, "cells", lambda: iter(keys))
    monkeypatch.setattr(short_steps, "ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(1))
    path = tmp_path / "table.csv"
    known = {**rows[0], "batches": "20", "epochs": "1", "length": "0.13", "certified": "kept"}
    short_steps._write(path, [known])
    found = short_steps.updated(path, ())
    assert [row["rule"] for row in found] == ["cyclic", "poisson"]
    assert found[0]["certified"] == "kept"
    assert float(found[1]["ratio"]) > 1.0
    again = short_steps.updated(path, ("cyclic",))
    assert float(again[0]["certified"]) > 0.0
    assert again[1] == found[1]
