"""bounds: what each states, on a terminal."""

import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.cli.bounds import _explanation, _statements
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

IDS = [*li.CATALOGUE, *LOWER_BOUNDS, *APPROXIMATIONS]


def test_no_markup_is_left():
    statements = _statements()
    for id_ in IDS:
        text = _explanation(statements[id_])
        assert f"docs/bounds.md#{id_.replace('/', '-')}" in text
        for left in ("\\", "**", ":math:", "{", "}"):
            assert left not in text
        assert max(map(len, text.splitlines())) <= 96


def test_whatever_is_listed_can_be_explained(answer):
    listed = answer("bounds").splitlines()
    assert set(IDS) <= set(listed)
    for id_ in IDS:
        text = answer("bounds", "--explain", id_)
        assert text.startswith(f"{id_}\n")
        assert ("a proved lower bound" in text) == (id_ in LOWER_BOUNDS)
        assert ("not a bound)" in text) == (id_ in APPROXIMATIONS)


@pytest.mark.parametrize("words", [["--explain", "random-order/shuffled/average-once"],
                                   ["random-order/shuffled/average-once"],
                                   ["--explain", "average-once"]])  # fmt: skip
def test_an_id_or_its_last_part_is_enough(answer, words):
    text = answer("bounds", *words)
    assert text.startswith("random-order/shuffled/average-once\n")
    assert "a batch order that stays secret" in text
    # Two papers are two citations.
    lines = text.splitlines()
    (first,) = [line for line in lines if line.startswith("Bok, Su and Altschuler (2024)")]
    (second,) = [line for line in lines if line.startswith("Ye and Shokri (2022)")]
    assert "Shokri" not in first
    assert "Bok" not in second


def test_one_id_at_a_time(answer):
    answer("bounds", "--explain", "once", code=2)
    text = answer("bounds", "random-order/shuffled", "--explain", "random-order/shuffled", code=2)
    assert "--explain must be left out where an ID is given" in text
