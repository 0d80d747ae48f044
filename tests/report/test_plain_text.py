"""Text in lines of a given width: nothing is lost, nothing sticks out, columns stay columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.report.text import as_text, in_columns, ruled, wrapped

CELLS = st.text(st.sampled_from("ab-/ "), max_size=40)
HEAD = ("bound", "epsilon", "mu")


def letters(text):
    return sorted(text.replace(" ", "").replace("\n", ""))


@given(text=CELLS, width=st.integers(4, 30))
def test_paragraphs(text, width):
    lines = wrapped(text, width)
    assert max(map(len, lines)) <= width
    assert letters("".join(lines)) == letters(text)


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4), width=st.integers(20, 90))
def test_cells_beside_each_other(rows, width):
    lines = in_columns(rows, width, apart=2)
    assert max(map(len, lines)) <= width
    assert letters("".join(lines)) == letters("".join(map("".join, rows)))


def test_columns_are_as_wide_as_they_need_to_be():
    assert in_columns([(" -", "one two"), (" -", "three")], 100, apart=1) == [
        " - one two",
        " - three",
    ]
    narrow = in_columns([("id", "one two\n-> three")], 9, apart=2)
    assert narrow == ["id  one", "    two", "    ->", "    three"]


def test_a_table():
    assert ruled(HEAD, [("first", "1.5", "-"), ("the second", "10.25", "2")], 100) == [
        "",
        " bound        epsilon   mu",
        f" {'─' * 25}",
        " first            1.5    -",
        " the second     10.25    2",
        "",
    ]


def test_the_widest_column_gives_way():
    assert ruled(HEAD, [("the second", "10.25", "2")], 23)[3:5] == [
        " the        10.25    2",
        " second",
    ]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_id_is_cut_off_however_narrow_the_terminal(width):
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=0.01),
        sensitivity=1.0,
        batches=li.Cyclic(100, 10),
        steps=20,
        step_size=0.5,
        noise_std=1.0,
    )
    report = li.account(run, including="published")
    text = as_text(report, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    joined = "".join(line[: width - 40] for line in text.splitlines()).replace(" ", "")
    assert all(id_ in joined for id_ in report.all)
