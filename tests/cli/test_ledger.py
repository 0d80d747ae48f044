"""lastiterate ledger, and train --ledger."""

import json
import math

import pytest

import lastiterate as li
from lastiterate.cli import main
from lastiterate.ledger import charges
from lastiterate.profile import GaussianProfile
from tests.certificate.test_signature import write_pair

CSV = "age,income\n" + "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(20, 90))
SCHEMA = {"age": {"range": [18, 90]}, "income": {"values": ["yes", "no"]}}
TRAIN = ["train", "p.csv", "--target", "income", "--schema", "p.json", "--epochs", "1"]
OPEN = ["--epsilon", "2", "--delta", "1e-5"]
ADD = ["add", "p.ledger"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "open", "p.ledger", *OPEN]) == 0
    return tmp_path


@pytest.fixture
def said(capsys):
    def answer(*words, code=0):
        capsys.readouterr()
        assert main(["ledger", *words]) == code
        printed = capsys.readouterr()
        return printed.err + printed.out

    return answer


def ledger():
    return li.Ledger("p.ledger")


def test_open_never_opens_twice(said):
    assert "must be a new file" in said("open", "p.ledger", *OPEN, code=2)
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
def test_add_and_verify(said, words):
    assert "charged as entry 1: epsilon 0." in said(*ADD, *words, "--about", "counts")
    assert "counts" in said("show", "p.ledger")
    assert said("verify", "p.ledger").startswith("holds: 2 entries, epsilon 0.")


def test_no_room_is_exit_code_1(said):
    assert "Nothing was charged" in said(*ADD, "--gaussian", "1", code=1)
    assert len(ledger().entries()) == 1
    said(*ADD, "--gaussian", "1", "--already-published")
    beyond = said(*ADD, "--epsilon", "1", "--delta", "0.1", "--already-published")
    assert "epsilon inf alone" in beyond


def test_a_delta_that_uses_up_the_budgets(said):
    refusal = said(*ADD, "--epsilon", "1", "--delta", "1e-5", code=1)
    assert "State a smaller --delta" in refusal
    assert "1e-07" in refusal
    assert "would fit" not in refusal
    said(*ADD, "--epsilon", "1", "--delta", "1e-7")


@pytest.mark.parametrize("words", [[], ["--gaussian", "1", "--laplace", "1"]])
def test_one_release_at_a_time(said, words):
    assert "exactly one of" in said(*ADD, *words, code=2)


def test_a_file_that_is_not_there(said, capsys):
    for command in ("show", "verify", "export"):
        refusal = said(command, "none", code=2)
        assert "ledger open" in refusal
        assert "none, which does not exist" in refusal
    assert main([*TRAIN, "--ledger", "none"]) == 2
    assert capsys.readouterr().err.startswith("lastiterate: --ledger must be a ledger")


def test_a_changed_ledger_is_exit_code_1(said, folder):
    said(*ADD, "--gaussian", "20")
    text = (folder / "p.ledger").read_text()
    (folder / "p.ledger").write_text(text.replace("0.1000", "0.0100"))
    assert "line 2 does not follow" in said("verify", "p.ledger", code=1)


def test_withdraw_and_export(said):
    charge = charges.stated(0.5, 0.0, adjacency="replace", examples_per_person=1)
    id_ = ledger().reserve(charge, "died")
    assert id_ in said("show", "p.ledger")
    said("withdraw", "p.ledger", id_, "--because", "no memory")
    record = json.loads(said("export", "p.ledger"))
    assert record["spent"] == 0.0
    assert [entry["what"] for entry in record["entries"]] == ["opened", "reserved", "withdrawn"]
    assert record["entries"] == list(ledger().entries())


def test_what_is_proved_of_an_adaptive_one(said):
    said("open", "a.ledger", *OPEN, "--adaptive")
    said("add", "a.ledger", "--gaussian", "20")
    assert "epsilon 2.0000 at delta" in said("verify", "a.ledger")


def test_persons(said):
    said("open", "a.ledger", *OPEN, "--examples-per-person", "4")
    for more, mu in (([], 0.1), (["--examples-per-person", "4"], math.hypot(0.1, 0.025))):
        said("add", "a.ledger", "--gaussian", "80", *more)
        expected = GaussianProfile(mu).epsilon(1e-5)
        assert li.Ledger("a.ledger").spent().epsilon(1e-5) == pytest.approx(expected, rel=1e-9)
    assert '"examples_per_person": 4' in said("export", "a.ledger")


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
    assert main(["ledger", *ADD, "model/certificate.json"]) == 2
    assert "costs nothing more" in capsys.readouterr().err
    assert main([*TRAIN, "--epsilon", "1.9", "--ledger", "p.ledger", "--out", "second"]) == 1
    assert "has epsilon 2 at delta 1e-05" in capsys.readouterr().err
    assert main([*TRAIN, "--ledger", "none.ledger", "--out", "second"]) == 2
    assert not (folder / "second").exists()
    assert main(["ledger", "verify", "p.ledger"]) == 0


class TestHeads:
    def test_are_signed(self, said, folder):
        (folder / "theirs").mkdir()
        private, public = write_pair(folder)
        _, stranger = write_pair(folder / "theirs")
        kept = folder / "head.json"
        said("head", "p.ledger", "--out", str(kept), "--sign", str(private))
        check = ["verify", "p.ledger", "--head", str(kept), "--signed-by"]
        said(*check, str(public))
        said(*check, str(stranger), code=1)
        record = json.loads(kept.read_text())
        kept.write_text(json.dumps(record | {"n": 7, "hash": record["ledger"]}))
        assert "signature is not of that key" in said(*check, str(public), code=1)
        said("verify", "p.ledger", "--head", "ab", "--signed-by", "x", code=2)

    def test_and_witnesses_tell_an_older_copy(self, said, folder):
        witness, kept = ["--witness", "w"], ["--head", "kept.json"]
        said("open", "l", *OPEN, *witness)
        said("head", "l", "--out", "kept.json")
        older = (folder / "l").read_bytes()
        add = ["add", "l", "--gaussian", "40", *witness]
        said(*add)
        said("verify", "l", *kept)
        said("head", "l", "--out", "kept.json")
        (folder / "l").write_bytes(older)
        said("show", "l", *witness, code=2)
        said(*add, code=2)
        for check in (witness, kept):
            assert "an older copy" in said("verify", "l", *check, code=1)
