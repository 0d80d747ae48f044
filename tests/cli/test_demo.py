"""The demonstration, and everything that it tells its reader to do."""

import re
import sys

import pytest

from lastiterate.cli import main


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder, and what was printed."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(words)))
        assert main(["demo", "--out", str(folder)]) == 0
    return folder, "\n".join(printed)


def numbers(text, line):
    found = next(one for one in text.splitlines() if line in one)
    return [float(number) for number in re.findall(r"\d+\.\d+", found)]


def test_the_last_iterate_costs_less_than_every_iterate(shown):
    last = numbers(shown[1], "lastiterate: the last iterate")
    every = numbers(shown[1], "composition: every iterate")
    poisson = numbers(shown[1], "dp-accounting: every iterate")
    assert last[0] == 4.0
    assert last[0] < every[0] / 4
    assert last[1] < every[1] / 4
    # What is said of Poisson sampling: costs of the same order, for other batches.
    assert last == pytest.approx(poisson, rel=0.15)


def test_the_model_is_of_use(shown):
    private, public = numbers(shown[1], "accuracy on 450")
    assert 80.0 < private <= public


def test_everything_is_written(shown):
    folder, text = shown
    for name in ("model.json", "certificate.json", "report.txt", "epsilon.png"):
        assert (folder / name).stat().st_size > 100
        assert name in text
    assert (folder / "epsilon.png").read_bytes().startswith(b"\x89PNG")
    assert "random-order/shuffled-once  <- used" in (folder / "report.txt").read_text()


def test_what_to_do_next_can_be_done(shown, capsys):
    lines = shown[1].split("What to do next:")[1].splitlines()
    commands = [line.split()[1:] for line in lines if line.startswith("  ")]
    assert [command[0] for command in commands] == ["verify", "predict", "train", "account"]
    for command in commands:
        assert main(command) == 0
    assert "holds: epsilon = 4" in capsys.readouterr().out


def test_without_matplotlib_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "no picture: drawing needs matplotlib" in capsys.readouterr().out
    assert not (tmp_path / "epsilon.png").exists()
