"""Every command explains itself with an example that works."""

import json
import re
import shlex

import numpy as np
import pytest

from lastiterate.cli import app, main
from tests.slow import slow_if

COMMANDS = [command.name for command in app.registered_commands]
SLOW = {"audit", "calibrate", "compare"}
LONG = {"demo", "explore"}  # which have test files of their own
TRAIN = "train people.csv --target income --epsilon 1 --schema people.json"


def example(capsys, name):
    assert main([name, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
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


def test_no_command_is_missing():
    assert {"account", "calibrate", "compare", "bounds", "train", "predict", "verify"} < {*COMMANDS}
    assert {"reproduce", "demo"} < {*COMMANDS}


@pytest.mark.parametrize(
    "name", slow_if(SLOW.__contains__, [name for name in COMMANDS if name not in LONG])
)
def test_the_example_works(capsys, monkeypatch, trained, name):
    monkeypatch.chdir(trained)
    words = example(capsys, name)
    assert words[0] == name
    assert name != "train" or words == shlex.split(TRAIN)
    assert main(words if name != "train" else [*words, "--force"]) == 0
    assert capsys.readouterr().out


def test_the_example_of_the_demo_is_the_demo(capsys):
    """Which test_demo.py runs."""
    assert example(capsys, "demo") == ["demo"]


def test_help_and_completion_need_no_arguments(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in COMMANDS)
    assert "--install-completion" in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_names_arguments_in_capitals(capsys, name):
    assert main([name, "--help"]) == 0
    usage = capsys.readouterr().out.splitlines()[0]
    assert usage.split(name)[1] == usage.split(name)[1].upper()
