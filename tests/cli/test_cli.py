"""The command as a whole: every command explains itself with an example that works."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import lastiterate as li
from lastiterate.cli import app, main
from lastiterate.errors import MissingExtra
from lastiterate.reproduce.papers import ITEMS, PAPERS
from lastiterate.run.batch_rules.base import RULES
from tests.slow import slow_if

COMMANDS = [command.name for command in app.registered_commands]
SLOW = {"audit", "calibrate", "compare"}
LONG = {"demo", "explore"}  # which have test files of their own
TRAIN = "train people.csv --target income --epsilon 1 --schema people.json"


def example(answer, name):
    text = " ".join(answer(name, "--help").split())
    found = re.search(r"Example: lastiterate (.*?) (Arguments|Options):", text)
    assert found, name
    return found[1].split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the files that the examples name, the trained model among them."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    ages = rng.integers(18, 90, 60)
    lines = [f"{age},{'ab'[age % 2]},{'yes' if age > 50 else 'no'}" for age in ages]
    (folder / "people.csv").write_text("age,job,income\n" + "\n".join(lines) + "\n")
    schema = {
        "age": {"range": [18, 90]},
        "job": {"values": ["a", "b"]},
        "income": {"values": ["yes", "no"]},
    }
    (folder / "people.json").write_text(json.dumps(schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(shlex.split(TRAIN)) == 0
    return folder


@pytest.mark.parametrize(
    "name", slow_if(SLOW.__contains__, [name for name in COMMANDS if name not in LONG])
)
def test_the_example_works(answer, monkeypatch, trained, name):
    monkeypatch.chdir(trained)
    words = example(answer, name)
    assert words[0] == name
    assert name != "train" or words == shlex.split(TRAIN)
    assert answer(*(words if name != "train" else [*words, "--force"]))


def test_the_example_of_the_demo_is_the_demo(answer):
    """Which test_demo.py runs."""
    assert example(answer, "demo") == ["demo"]


def test_help_and_completion_need_no_arguments(answer):
    listed = answer()
    assert "Commands:" in listed
    assert all(f"\n  {name} " in listed for name in COMMANDS)
    assert "--install-completion" in listed
    for name in COMMANDS:
        usage = answer(name, "--help").splitlines()[0]
        assert usage.split(name)[1] == usage.split(name)[1].upper()  # arguments in capitals


@pytest.mark.parametrize(
    "words, meant",
    [
        (["plot"], "plot takes one of epsilon-by-steps"),
        (["plot", "histogram"], "plot takes one of epsilon-by-steps"),
        (["reproduce", "bsa-tabel-3"], "did you mean 'bsa-table-3'"),
    ],
)
def test_an_unknown_word_is_answered_with_those_that_there_are(answer, words, meant):
    assert meant in answer(*words, code=2)


@pytest.fixture
def offered(monkeypatch, capsys):
    """What the shell is told to offer after these words."""

    def completed(*words):
        monkeypatch.setenv("_LASTITERATE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("lastiterate", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            app(prog_name="lastiterate")
        return set(capsys.readouterr().out.split())

    return completed


@pytest.mark.parametrize(
    "words, some",
    [
        (["account", "--batches", "shuffled"], {"shuffled-once", "shuffled-each-epoch"}),
        (["account", "--adjacency", ""], {"replace", "zero-out", "add-remove"}),
        (["compare", "--releases", "last"], {"last-iterate", "last-iterate-and-order"}),
        (["calibrate", "--over", "noise"], {"noise", "noise-std"}),
        (["bounds", "--explain", "composition"], {"composition/fixed-order"}),
        (["reproduce", "bsa-table-1"], {"bsa-table-1", "bsa-table-10"}),
        (["account", "--batches", ""], {name for name, rule in RULES.items() if rule.from_sizes}),
    ],
)
def test_shells_offer_values(offered, words, some):
    found = offered(*words)
    assert some <= found
    assert all(one.startswith(words[-1]) for one in found)
    assert words != ["account", "--batches", ""] or found == some


def test_python_runs_the_package():
    for words in (["-m", "lastiterate"], ["-c", "from lastiterate.cli import run; run()"]):
        found = subprocess.run(
            [sys.executable, *words, "--version"], capture_output=True, text=True, check=True
        )
        assert found.stdout == f"lastiterate {li.__version__}\n"


def test_reproductions_are_listed_and_their_names_explained(answer):
    text = answer("reproduce")
    assert "bsa-table-3" in text
    assert {item.split("-")[0] for item in ITEMS} == set(PAPERS)
    assert all(f"{short}: {paper}" in text for short, paper in PAPERS.items())


def test_what_is_missing_can_be_installed_from_a_clone():
    said = str(MissingExtra("drawing", "matplotlib", extra="plot"))
    assert "pip install 'lastiterate[plot]'" in said
    assert "pip install '.[plot]'" in said
