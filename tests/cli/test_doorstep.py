"""What a newcomer's first mistakes are answered with."""

import json

import numpy as np
import pytest

from lastiterate.cli import main
from lastiterate.errors import MissingExtra

SCHEMA = {
    "x": {"range": [-1, 1]},
    "side": {"values": ["left", "right"]},
    "y": {"values": ["no", "yes"]},
}


@pytest.fixture(scope="module")
def table():
    """A column of numbers and one of text that both tell the label, by themselves nearly."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 6_000)
    side = np.where(x + 0.3 * rng.normal(size=x.size) > 0, "right", "left")
    label = np.where(x + 0.3 * rng.normal(size=x.size) > 0, "yes", "no")
    return [f"{a:.3f},{b},{c}" for a, b, c in zip(x, side, label, strict=True)]


@pytest.fixture
def trained(table, tmp_path, capsys):
    """Trains with a schema, and perhaps a table to test with; what was said of it."""

    def train(schema, tested=None):
        (tmp_path / "s.json").write_text(json.dumps(schema))
        (tmp_path / "data.csv").write_text("\n".join(["x,side,y", *table]))
        words = ["train", str(tmp_path / "data.csv"), "--target", "y", "--epsilon", "20"]
        words += ["--schema", str(tmp_path / "s.json"), "--out", str(tmp_path / "m")]
        if tested is not None:
            (tmp_path / "t.csv").write_text("\n".join(["x,side,y", *tested]))
            words += ["--test", str(tmp_path / "t.csv"), "--test-is-public"]
        code = main(words)
        said = capsys.readouterr()
        return code, said.out + said.err

    return train


class TestLabelsOfATestFile:
    def test_that_are_all_spelt_otherwise_are_refused_before_training(self, trained, tmp_path):
        code, said = trained(SCHEMA, ["0.5,right,yes.", "-0.5,left,no."])
        assert code == 2
        assert "column 'y' of t.csv must be one of the values that the schema has for it" in said
        assert not (tmp_path / "m").exists()

    def test_that_are_partly_so_are_counted(self, trained):
        code, said = trained(SCHEMA, ["0.9,right,yes", "-0.9,left,no", "0.9,right,yes."])
        assert code == 0
        words = " ".join(said.split())
        assert "1 of them have an undeclared label, which counts as wrong" in words


class TestColumnsOfATestFile:
    def test_that_are_spelt_otherwise_are_refused_before_training(self, trained, tmp_path):
        other = SCHEMA | {"side": {"values": ["Left", "Right"]}}
        code, said = trained(other, ["0.9,right,yes", "-0.9,left,no"])
        assert code == 2
        assert "column 'side' of t.csv must be one of the values that the schema has" in said
        assert not (tmp_path / "m").exists()

    def test_that_are_private_are_counted_with_noise(self, trained, tmp_path):
        other = SCHEMA | {"side": {"values": ["Left", "Right"]}}
        code, said = trained(other)
        assert code == 0
        assert "100 % (a noisy count, give or take 0 %) of the rows have none of the values" in said
        assert "for the column 'side'" in said
        other_releases = json.loads((tmp_path / "m" / "certificate.json").read_text())[
            "other_releases"
        ]
        assert "undeclared" in [one["kind"] for one in other_releases]


@pytest.mark.parametrize("words", [["--adam", "1"], ["--optimizer=adam"]])
def test_another_optimiser_is_charged_for_every_iterate(words, capsys):
    assert main(["account", *words]) == 2
    assert "are charged for every iterate" in capsys.readouterr().err


def test_other_unknown_options_are_not_advised_on(capsys):
    assert main(["account", "--colour"]) == 2
    assert "every iterate" not in capsys.readouterr().err


def test_what_is_missing_can_be_installed_from_a_clone():
    said = str(MissingExtra("drawing", "matplotlib", extra="plot"))
    assert "pip install 'lastiterate[plot]'" in said
    assert "pip install '.[plot]'" in said
