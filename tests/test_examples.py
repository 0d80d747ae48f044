"""What the README and the design promise, run as a user would run it."""

import sys
from itertools import islice
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run_example(monkeypatch, capsys):
    def run(name):
        monkeypatch.setattr(sys, "argv", [name])
        run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_main_example_prints_the_report(run_example):
    text = run_example("shuffled_logistic_regression.py")
    assert "random-order/shuffled <- used" in text
    assert "4.3392" in text
    assert "3.4073" in text


def test_the_first_row_of_the_readme_s_table_is_its_example_s(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import epsilon_by_epochs

    first = [f"| {' | '.join(cells)} |\n" for cells in islice(epsilon_by_epochs.table(), 3)]
    assert "".join(first) in (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_table_of_the_readme_is_what_its_example_prints(run_example):
    printed = run_example("epsilon_by_epochs.py")
    assert printed.count("\n") == 5
    assert printed in (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_tables_of_sampled_batches(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import sampled_batches

    near = sampled_batches.nearness(epochs=(5,), regularisers=(0.02,))
    certified, simulated = (next(iter(near.columns[k].cells)) for k in (3, 4))
    exact, error = map(float, simulated.split(" +- "))
    assert exact - 4 * error <= float(certified) <= 1.2 * exact + 4 * error
    bounded = sampled_batches.bounded(shares=(20,), sensitivities=(1.0,), steps=200)
    ours, theirs = (float(next(iter(bounded.columns[k].cells))) for k in (2, 3))
    assert 0.0 < ours < theirs
    rows = sampled_batches.curves([1, 10], 0.02)
    assert len(rows) == len(sampled_batches.NAMES)
    assert all(lower < fixed for fixed, lower in zip(rows[1], rows[4], strict=True))
