"""The page about other accountants is what its script writes, as far as they are installed here."""

from pathlib import Path

import pytest

from tests.slow import slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import against_others

    return against_others


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("batches", ["shuffled once", slow("Poisson")])
def test_the_page_has_the_numbers_of_what_is_installed(script, batches):
    page = (ROOT / "docs" / "utility.md").read_text()
    page = page.partition(script.MARK)[2].partition(script.END)[0].splitlines()
    rows = [cells(line) for line in page if line.startswith("| ")][1:]
    assert len(rows) == len(script.ROWS)
    checked = 0
    for row, (package, _, *said, function) in zip(rows, script.ROWS, strict=True):
        assert row[0].split()[0] == package
        assert row[1:4] == said
        if package == "lastiterate" and batches in said:
            assert row[4:] == [script.shown(function, epochs) for epochs in script.EPOCHS]
            checked += 1
        elif package == "dp-accounting":
            # Another version may round otherwise.
            assert float(row[4]) == pytest.approx(float(script.shown(function, 50)), abs=0.02)
            checked += 1
    assert checked == 4


def test_what_is_missing_or_broken_is_said(script):
    def missing(_):
        raise ImportError

    def broken(_):
        raise ZeroDivisionError

    rows = [("no-such-package", "x", "a", "b", "c", missing)]
    rows += [("lastiterate", "", "a", "b", "c", broken)]
    lines = list(script.table(rows, epochs=(1,)))[2:]
    assert lines[0] == "| no-such-package x | a | b | c | not installed |"
    assert lines[1].endswith("| fails: ZeroDivisionError |")
