"""What shells offer, how numbers may be written, and bounds on a terminal."""

import os
import subprocess
import sys

import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.cli import main
from lastiterate.cli.bounds import _explained, _statements
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.run.batch_rules.base import RULES
from tests.slow import slow


def offered(*words):
    """What the shell is told to offer after these words."""
    asked = {
        "_LASTITERATE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("lastiterate", *words)),
        "COMP_CWORD": str(len(words)),
    }
    code = "import sys; sys.argv = ['lastiterate']; from lastiterate.cli import run; run()"
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return found.stdout.split()


@pytest.mark.parametrize(
    "words, some",
    [
        (["account", "--batches", "shuffled"], {"shuffled-once", "shuffled-each-epoch"}),
        (["account", "--adjacency", ""], {"replace", "zero-out", "add-remove"}),
        slow(["compare", "--releases", "last"], {"last-iterate", "last-iterate-and-order"}),
        slow(["calibrate", "--over", "noise"], {"noise", "noise-std"}),
        (["bounds", "--explain", "composition"], {"composition/fixed-order"}),
        (["reproduce", "bsa-table-1"], {"bsa-table-1", "bsa-table-10"}),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_shells_offer_values(words, some):
    found = set(offered(*words))
    assert some <= found
    assert all(one.startswith(words[-1]) for one in found)


def test_every_rule_that_can_be_typed_is_offered():
    typed = {name for name, rule in RULES.items() if rule.from_sizes}
    assert set(offered("account", "--batches", "")) == typed


@pytest.mark.parametrize("text", ["600", "6e2", "6_00", "600.0", "0.6e3", "+600"])
def test_whole_numbers_as_people_write_them(capsys, text):
    flags = ["--batch-size", "20", "--steps", "1,000", "--clip-norm", "1"]
    words = ["account", "--examples", text, *flags, "--noise-multiplier", "1", "--batches", "full"]
    del words[3:5]
    assert main(words) == 0
    assert "1,000 steps of noisy gradient descent, each on all of 600" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["5,00", "1.5", "1e-2", "1e400", "", "x", "1,5e3", "nan"])
def test_what_is_no_whole_number(capsys, text):
    assert main(["account", "--examples", text]) == 2
    assert "is not a whole number, such as 50000" in capsys.readouterr().err


class TestExplained:
    @pytest.mark.parametrize("id_", [*li.CATALOGUE, *LOWER_BOUNDS, *APPROXIMATIONS])
    def test_no_markup_is_left(self, id_):
        text = _explained(_statements()[id_])
        assert f"docs/bounds.md#{id_.replace('/', '-')}" in text
        for left in ("\\", "**", ":math:", "{", "}"):
            assert left not in text
        assert max(map(len, text.splitlines())) <= 96

    @pytest.mark.parametrize("id_", [*li.CATALOGUE, *LOWER_BOUNDS, *APPROXIMATIONS])
    def test_whatever_is_listed_can_be_explained(self, capsys, id_):
        assert main(["bounds"]) == 0
        assert id_ in capsys.readouterr().out.splitlines()
        assert main(["bounds", "--explain", id_]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"{id_}\n")
        assert ("a proved lower bound" in text) == (id_ in LOWER_BOUNDS)
        assert ("not a bound)" in text) == (id_ in APPROXIMATIONS)

    def test_the_last_part_of_an_id_is_enough(self, capsys):
        assert main(["bounds", "--explain", "average-once"]) == 0
        assert capsys.readouterr().out.startswith("random-order/shuffled/average-once\n")
        assert main(["bounds", "--explain", "once"]) == 2

    def test_two_papers_are_two_citations(self, capsys):
        assert main(["bounds", "--explain", "average-once"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (first,) = [line for line in lines if line.startswith("Bok, Su and Altschuler (2024)")]
        (second,) = [line for line in lines if line.startswith("Ye and Shokri (2022)")]
        assert "Shokri" not in first
        assert "Bok" not in second


def test_python_runs_the_package():
    found = subprocess.run(
        [sys.executable, "-m", "lastiterate", "--version"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert found.stdout == f"lastiterate {li.__version__}\n"


def test_the_names_of_reproductions_are_explained(capsys):
    from lastiterate.reproduce.papers import ITEMS, PAPERS

    assert main(["reproduce"]) == 0
    text = capsys.readouterr().out
    assert {item.split("-")[0] for item in ITEMS} == set(PAPERS)
    assert all(f"{short}: {paper}" in text for short, paper in PAPERS.items())
