"""`lastiterate unlearn`: a new model or nothing at all."""

import json
import shutil

import numpy as np
import pytest

from lastiterate.cli import main

pytestmark = pytest.mark.slow  # training by the command takes seconds


def train(home, out, *more):
    words = [
        "train",
        home / "people.csv",
        "--target",
        "buys",
        "--epsilon",
        "3",
        "--schema",
        home / "people.json",
        "--key",
        home / "secret",
        "--epochs",
        "2",
        "--out",
        home / out,
    ]
    assert main([*map(str, words), *more]) == 0  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, its schema, a secret, and a model that was trained on it."""
    home = tmp_path_factory.mktemp("people")
    ages = np.random.default_rng(0).integers(18, 90, size=400)
    lines = [f"{age},{'yes' if age > 50 else 'no'}" for age in ages]
    (home / "people.csv").write_text("\n".join(["age,buys", *lines]) + "\n")
    schema = {"age": {"range": [18, 90]}, "buys": {"values": ["no", "yes"]}}
    (home / "people.json").write_text(json.dumps(schema))
    (home / "secret").write_bytes(bytes(range(32)))
    train(home, "model", "--l2", "0.1")
    return home


def unlearn(folder, *more, model="model", rows="17,203", out="forgotten", data="people.csv"):
    return main(
        [
            *("unlearn", str(folder / model), str(folder / data), "--rows", rows),
            *("--epsilon", "1.5", "--out", str(folder / out), *more),
        ]
    )


@pytest.fixture(scope="module")
def forgotten(folder):
    assert unlearn(folder, "--key", str(folder / "secret")) == 0
    return folder


def test_writes_a_model_that_verifies_and_predicts(forgotten, capsys):
    assert main(["verify", str(forgotten / "forgotten")]) == 0
    told = capsys.readouterr().out
    assert "request 1: 2 rows unlearned" in told
    assert "for the remaining rows, and for all models" in told
    assert main(["predict", str(forgotten / "forgotten"), str(forgotten / "people.csv")]) == 0


def test_goes_on(forgotten, capsys):
    again = ["--key", str(forgotten / "secret")]
    assert unlearn(forgotten, *again, model="forgotten", rows="1", out="again") == 0
    capsys.readouterr()
    assert main(["verify", str(forgotten / "again")]) == 0
    assert "all removed rows together" in capsys.readouterr().out
    assert unlearn(forgotten, *again, model="again", rows="203", out="never") == 2
    assert "removed before" in capsys.readouterr().err
    assert not (forgotten / "never").exists()


def test_a_plan_writes_nothing_and_needs_no_key(folder, capsys):
    assert unlearn(folder, "--plan", out="planned") == 0
    assert "extra steps without them unlearn 2 examples" in capsys.readouterr().out
    assert not (folder / "planned").exists()


def test_a_model_with_a_ledger_is_charged_to_it(folder, capsys):
    ledger, other = (str(folder / name) for name in ("one.ledger", "other.ledger"))
    for file in (ledger, other):
        assert main(["ledger", "open", file, "--epsilon", "50", "--delta", "1e-5"]) == 0
    train(folder, "charged", "--l2", "0.1", "--ledger", ledger)
    ask = ["--key", str(folder / "secret")]
    for more, told in (([], "found none"), (["--ledger", other], "which is another")):
        capsys.readouterr()
        assert unlearn(folder, *ask, *more, model="charged", out="never") == 2
        said = capsys.readouterr().err
        assert "--ledger must be the ledger that the training was charged to" in said
        assert told in said
    assert unlearn(folder, *ask, "--ledger", ledger, model="charged", out="less") == 0
    assert main(["ledger", "verify", ledger]) == 0
    assert unlearn(folder, *ask, model="less", rows="3", out="never") == 2


@pytest.mark.parametrize(
    "asked, told",
    [
        ({"rows": "0"}, r"[1, 400]"),
        ({"rows": "401"}, r"[1, 400]"),
        ({"rows": "3,3"}, "distinct row numbers"),
        ({"rows": "3-9"}, "17,203"),
        ({"data": "other.csv"}, "data and key must be those of the training"),
    ],
)
def test_nothing_is_written_on_failure(folder, capsys, asked, told):
    lines = (folder / "people.csv").read_text().splitlines()
    (folder / "other.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    assert unlearn(folder, "--key", str(folder / "secret"), out="failed", **asked) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "failed").exists()


def test_what_costs_more_than_training_needs_a_word(folder, capsys):
    train(folder, "plain", "--class-prior", "yes=0.5", "--clip-norm", "0.3")
    capsys.readouterr()
    asked = ["--key", str(folder / "secret"), "--force"]  # which is about files, not about costs
    assert unlearn(folder, *asked, model="plain", out="dear") == 2
    assert "--l2 0.01" in capsys.readouterr().err
    assert not (folder / "dear").exists()
    assert unlearn(folder, *asked, "--at-any-cost", model="plain", out="dear") == 0
    assert main(["verify", str(folder / "dear")]) == 0


def test_without_or_with_another_key(folder, capsys):
    assert unlearn(folder, out="failed") == 2
    assert "--key must be the key file" in capsys.readouterr().err
    (folder / "wrong").write_bytes(bytes(32))
    assert unlearn(folder, "--key", str(folder / "wrong"), out="failed") == 2
    assert "the same secret key" in capsys.readouterr().err
    assert not (folder / "failed").exists()


def test_a_tampered_model_is_refused(folder, capsys):
    shutil.copytree(folder / "model", folder / "tampered")
    path = folder / "tampered" / "certificate.json"
    path.write_text(path.read_text().replace('"delta": 1e-05', '"delta": 1e-07'))
    assert unlearn(folder, "--key", str(folder / "secret"), model="tampered", out="failed") == 2
    assert "does not hold" in capsys.readouterr().err
    assert not (folder / "failed").exists()
