"""No cell decides what others are, however a tool stores their column."""

import sys

import pytest

from lastiterate.tables.cells import cell_of
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
