"""The demonstration, and everything that it tells its reader to do."""

import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import lastiterate as li
from lastiterate.cli import demo, main
from lastiterate.report import html

ROOT = Path(__file__).parent.parent.parent
EPOCHS = (10, 300)  # the least and the most that it shows


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder, and what was printed."""
    folder = tmp_path_factory.mktemp("demo")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        assert (demo.EPOCHS[0], demo.EPOCHS[-1]) == EPOCHS
        patch.setattr(demo, "EPOCHS", EPOCHS)
        patch.setattr(html, "_picture", lambda *_: [])  # which take long
        patch.setenv("COLUMNS", "80")
        patch.chdir(folder)
        assert main(["demo"]) == 0
    return folder, printed.getvalue()


def numbers(text, line):
    found = next(one for one in text.splitlines() if line in one)
    return [float(number) for number in re.findall(r"\d+\.\d+", found)]


def test_the_first_comparison_is_of_one_run_and_true(shown):
    every = numbers(shown[1], demo.EVERY)
    last = numbers(shown[1], demo.POISSON)
    shuffled = numbers(shown[1], demo.SHUFFLED)
    assert len(every) == len(last) == len(shuffled) == len(EPOCHS)
    run = demo.dp_sgd_run(EPOCHS[0], "poisson")
    certified = li.account(run)
    assert last[0] == pytest.approx(certified.epsilon(1e-5), abs=1.1e-4)
    composed = certified.all["composition/sampled"].epsilon(1e-5)
    assert every[0] == pytest.approx(composed, rel=2e-3)
    # What is said of it: one stops growing where the other does not.
    assert last[-1] < 1.01 * last[0]
    assert shuffled[-1] < 1.01 * shuffled[0]
    assert every[-1] > 3 * every[0]
    assert all(ours < theirs for ours, theirs in zip(last, every, strict=True))


@pytest.mark.slow
def test_it_grows_without_curvature_as_is_said():
    run = demo.dp_sgd_run(10, "shuffled-each-epoch").replace(loss=li.Loss(smoothness=1.0))
    longer = run.replace(steps=8 * run.steps)
    assert li.account(longer).epsilon(1e-5) > 1.5 * li.account(run).epsilon(1e-5)


def test_the_table_is_of_the_readme_s_run(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import epsilon_by_epochs

    for rule, name in (
        (li.PoissonSampled, "poisson"),
        (li.ShuffledEachEpoch, "shuffled-each-epoch"),
    ):
        run = epsilon_by_epochs.logistic_regression(rule, *epsilon_by_epochs.SMALL, 30, 0.01)
        assert demo.dp_sgd_run(30, name) == run


def test_every_step_would_have_been_charged_more(shown):
    assert "Certified: epsilon = 4.0000 at delta = 1e-05, one example replaced" in shown[1]
    composed, sampled = map(
        float,
        re.search(r"epsilon = (\S+): it charges every iterate;\s+(\S+) if", shown[1]).groups(),
    )
    report = li.verify(shown[0] / "lastiterate-demo" / "model" / "certificate.json")
    every = li.account(
        report.run, bounds="composition/fixed-order", other_releases=report.other_releases
    ).epsilon(1e-5)
    assert composed == pytest.approx(every, abs=1.1e-4)
    assert composed > 4 * 4.0
    # Nor does Poisson sampling make up for it.
    assert sampled > 1.25 * 4.0


def test_the_model_is_of_use(shown):
    (private,) = numbers(shown[1], "accuracy on 450")
    public, chance = numbers(shown[1], "without privacy")
    assert 80.0 < private <= public
    assert chance < 15.0


def test_everything_is_written_and_said_on_one_screen(shown):
    folder, text = shown
    assert len(text.splitlines()) <= 35
    assert max(map(len, text.splitlines())) <= 80
    folder = folder / "lastiterate-demo"
    for name in ("model/model.json", "model/certificate.json", "report.html", "epsilon.png"):
        assert (folder / name).stat().st_size > 100
        assert name in text
    assert (folder / "epsilon.png").read_bytes().startswith(b"\x89PNG")
    assert "random-order/shuffled <- used" in (folder / "report.txt").read_text()


def test_what_is_shown_can_be_typed(shown, capsys, monkeypatch):
    monkeypatch.chdir(shown[0])
    lines = shown[1].replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ lastiterate ")]
    assert [command[0] for command in commands] == ["train", "verify"]
    for command in commands:
        assert main(command) == 0
    assert "holds: epsilon = 4" in capsys.readouterr().out


@pytest.mark.slow
def test_without_matplotlib_it_says_so_and_the_full_report_is_an_option(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(demo, "EPOCHS", (1,))
    assert main(["demo", "--report", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "no picture: drawing needs matplotlib" in printed
    assert not (tmp_path / "epsilon.png").exists()
    text, _, seal = (tmp_path / "report.txt").read_text().rstrip().rpartition("\n\n")
    assert seal.startswith("lastiterate wrote what is above")
    assert text in printed
