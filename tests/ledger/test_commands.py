"""lastiterate ledger, and train --ledger."""

import json

import pytest

import lastiterate as li
from lastiterate.cli import main

CSV = "age,income\n" + "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(20, 90))
SCHEMA = {"age": {"range": [18, 90]}, "income": {"values": ["yes", "no"]}}
TRAIN = ["train", "p.csv", "--target", "income", "--schema", "p.json", "--epochs", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "open", "p.ledger", "--epsilon", "2", "--delta", "1e-5"]) == 0
    return tmp_path


def ledger():
    return li.Ledger("p.ledger")


def test_open_never_opens_twice(capsys):
    assert main(["ledger", "open", "p.ledger", "--epsilon", "3", "--delta", "1e-5"]) == 2
    assert "must be a new file" in capsys.readouterr().err
    assert ledger().epsilon == 2.0


@pytest.mark.parametrize(
    "words",
    [
        ["--gaussian", "20"],
        ["--laplace", "40", "--times", "3"],
        ["--gaussian", "10", "--sampling-probability", "0.1", "--times", "5"],
        ["--epsilon", "0.2", "--delta", "1e-9", "--adjacency", "add-remove"],
    ],
)
def test_add_and_verify(capsys, words):
    assert main(["ledger", "add", "p.ledger", *words, "--about", "counts"]) == 0
    assert "charged as entry 1: epsilon 0." in capsys.readouterr().out
    assert main(["ledger", "show", "p.ledger"]) == 0
    assert "counts" in capsys.readouterr().out
    assert main(["ledger", "verify", "p.ledger"]) == 0
    assert capsys.readouterr().out.startswith("holds: 2 entries, epsilon 0.")


def test_no_room_is_exit_code_1(capsys):
    assert main(["ledger", "add", "p.ledger", "--gaussian", "1"]) == 1
    assert "Nothing was charged" in capsys.readouterr().err
    assert len(ledger().entries()) == 1
    words = ["ledger", "add", "p.ledger", "--gaussian", "1", "--already-published"]
    assert main(words) == 0


def test_a_delta_that_uses_up_the_budgets(capsys):
    words = ["ledger", "add", "p.ledger", "--epsilon", "1", "--delta"]
    assert main([*words, "1e-5"]) == 1
    said = capsys.readouterr().err
    assert "State a smaller --delta" in said
    assert "1e-07" in said
    assert "would fit" not in said
    assert main([*words, "1e-7"]) == 0


def test_a_ledger_that_is_missing(capsys):
    assert main([*TRAIN, "--ledger", "none"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lastiterate: --ledger must be a ledger")
    assert "none, which does not exist" in said
    assert main(["ledger", "show", "none"]) == 2
    assert "none, which does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--gaussian", "1", "--laplace", "1"]])
def test_one_release_at_a_time(capsys, words):
    assert main(["ledger", "add", "p.ledger", *words]) == 2
    assert "exactly one of" in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys):
    for command in ("show", "verify", "export"):
        assert main(["ledger", command, "other.ledger"]) == 2
        assert "ledger open" in capsys.readouterr().err


def test_a_changed_ledger_is_exit_code_1(capsys, folder):
    main(["ledger", "add", "p.ledger", "--gaussian", "20"])
    text = (folder / "p.ledger").read_text()
    (folder / "p.ledger").write_text(text.replace("0.1000", "0.0100"))
    capsys.readouterr()
    assert main(["ledger", "verify", "p.ledger"]) == 1
    assert "line 2 does not follow" in capsys.readouterr().err


def test_withdraw_and_export(capsys):
    from lastiterate.ledger import charges

    id_ = ledger().reserve(
        charges.stated(0.5, 0.0, adjacency="replace", examples_per_person=1), "died"
    )
    main(["ledger", "show", "p.ledger"])
    assert id_ in capsys.readouterr().out
    assert main(["ledger", "withdraw", "p.ledger", id_, "--because", "no memory"]) == 0
    assert main(["ledger", "export", "p.ledger"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["spent"] == 0.0
    assert [entry["what"] for entry in record["entries"]] == ["opened", "reserved", "withdrawn"]
    assert record["entries"] == list(ledger().entries())


def test_train_is_charged_or_refused(capsys, folder):
    (folder / "p.csv").write_text(CSV)
    (folder / "p.json").write_text(json.dumps(SCHEMA))
    assert main([*TRAIN, "--epsilon", "1", "--ledger", "p.ledger"]) == 0
    assert [entry["what"] for entry in ledger().entries()[1:]] == ["reserved", "settled"]
    assert ledger().entries()[1]["about"] == "PrivateLogisticRegression of 'income', in model"
    another = "Another training on these rows adds to this epsilon"
    assert another not in capsys.readouterr().out
    assert main([*TRAIN, "--epsilon", "1", "--out", "alone"]) == 0
    assert another in capsys.readouterr().out
    assert main(["ledger", "add", "p.ledger", "model/certificate.json"]) == 2
    assert "costs nothing more" in capsys.readouterr().err
    assert main([*TRAIN, "--epsilon", "1.9", "--ledger", "p.ledger", "--out", "second"]) == 1
    assert "has epsilon 2 at delta 1e-05" in capsys.readouterr().err
    assert not (folder / "second").exists()
    assert main([*TRAIN, "--ledger", "none.ledger", "--out", "second"]) == 2
    assert not (folder / "second").exists()
    assert main(["ledger", "verify", "p.ledger"]) == 0
