"""The demonstration, and everything that it tells its reader to do."""

import re
import sys

import pytest

import lastiterate as li
from lastiterate.cli import known_run, main

EPOCHS = (10, 300)  # the least and the most that it shows


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder, and what was printed."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        assert (known_run.EPOCHS[0], known_run.EPOCHS[-1]) == EPOCHS
        patch.setattr(known_run, "EPOCHS", EPOCHS)
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(words)))
        assert main(["demo", "--out", str(folder)]) == 0
    return folder, "\n".join(printed)


def numbers(text, line):
    found = next(one for one in text.splitlines() if line in one)
    return [float(number) for number in re.findall(r"\d+\.\d+", found)]


def test_the_first_comparison_is_of_one_run_and_true(shown):
    every = numbers(shown[1], known_run.EVERY)
    last = numbers(shown[1], f"  {known_run.POISSON}  ")
    shuffled = numbers(shown[1], known_run.SHUFFLED)
    assert len(every) == len(last) == len(shuffled) == len(EPOCHS)
    run = known_run.run_of(EPOCHS[0], "poisson")
    certified = li.account(run)
    assert last[0] == pytest.approx(certified.epsilon(1e-5), abs=1.1e-4)
    composed = certified.all["composition/sampled"].epsilon(1e-5)
    assert every[0] == pytest.approx(composed, rel=2e-3)
    # What is said of it: one stops growing where the other does not.
    assert last[-1] < 1.01 * last[0]
    assert shuffled[-1] < 1.01 * shuffled[0]
    assert every[-1] > 3 * every[0]
    assert all(ours < theirs for ours, theirs in zip(last, every, strict=True))


def test_it_grows_without_curvature_as_is_said():
    run = known_run.run_of(10, "shuffled-each-epoch").replace(loss=li.Loss(smoothness=1.0))
    longer = run.replace(steps=30 * run.steps)
    assert li.account(longer).epsilon(1e-5) > 2 * li.account(run).epsilon(1e-5)


def test_the_last_iterate_costs_less_than_every_iterate(shown):
    last = numbers(shown[1], "lastiterate: the last iterate")
    every = numbers(shown[1], "composition: every iterate")
    assert last[0] == 4.0
    assert last[0] < every[0] / 4
    assert last[1] < every[1] / 4
    # What is said of Poisson sampling: costs of the same order, for other batches.
    assert last == pytest.approx(numbers(shown[1], "would cost "), rel=0.15)


def test_the_model_is_of_use(shown):
    private, public = numbers(shown[1], "accuracy on 450")
    assert 80.0 < private <= public


def test_everything_is_written(shown):
    folder, text = shown
    for name in ("model.json", "certificate.json", "report.txt", "epsilon.png"):
        assert (folder / name).stat().st_size > 100
        assert name in text
    assert (folder / "epsilon.png").read_bytes().startswith(b"\x89PNG")
    assert "random-order/hidden-place <- used" in (folder / "report.txt").read_text()


def test_what_to_do_next_can_be_done(shown, capsys):
    lines = shown[1].split("What to do next:")[1].splitlines()
    commands = [line.split()[1:] for line in lines if line.startswith("  ")]
    assert [command[0] for command in commands] == ["verify", "predict", "train", "account"]
    for command in commands:
        assert main(command) == 0
    assert "holds: epsilon = 4" in capsys.readouterr().out


def test_without_matplotlib_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("lastiterate.cli.known_run.EPOCHS", (1,))
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "no picture: drawing needs matplotlib" in capsys.readouterr().out
    assert not (tmp_path / "epsilon.png").exists()
