"""A token planted in the data is in nothing that is printed, written or raised."""

import json
from uuid import uuid4

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastiterate.cli import main

from .test_malformed import SCHEMA, table, train_small

TOKEN = "Tr0ub4dor"
NUMBER = "98765432123"
CELLS = [TOKEN, f"{TOKEN},", f'"{TOKEN}', f"{TOKEN}\n", f" {TOKEN}\x00", NUMBER, f"-{NUMBER}e300",
         f"{NUMBER}e999", f"{NUMBER}j", f"nan{TOKEN}", "", "\ufeff" + TOKEN]  # fmt: skip
FLAGS = st.sampled_from(
    [[], ["--epsilon", "0"], ["--delta", "2"], ["--feature-bound", "nan"], ["--adjacency", "x"],
     ["--classes", "y,n"], ["--epochs", "0"], ["--target", "size"], ["--target", "absent"],
     ["--out", "data.csv/x"], ["--sign", "data.csv"], ["--schema", "data.csv"],
     ["--schema", "absent"]]
)  # fmt: skip
COLUMN = [None, {"range": [0, 6]}, {"values": ["a", "b"]}, {"range": [6, 0]}, {"values": []}, 3]


@st.composite
def trainings(draw):
    """A table with the token somewhere, a schema and flags, any of which may be wrong."""
    places = st.tuples(st.integers(1, 40), st.integers(0, 2), st.sampled_from(CELLS))
    cells = draw(st.lists(places, min_size=1, max_size=4))
    content = table(cells)
    if draw(st.booleans()):
        content = content.partition("\n")[2]  # no header
    schema = dict(SCHEMA)
    changed = draw(st.sampled_from(COLUMN))
    if changed is not None:
        schema[draw(st.sampled_from(list(schema)))] = changed
    return content, schema, draw(FLAGS)


def assert_kept(folder, capsys, *, besides=()):
    said = capsys.readouterr()
    told = {"printed": said.out, "said": said.err}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("data.csv", *besides):
            told[path.name] = path.read_text(errors="replace")
    for where, text in told.items():
        assert TOKEN not in text, where
        assert NUMBER not in text, where


@settings(
    max_examples=25 if settings.default.derandomize else 400,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(call=trainings())
def test_training(capsys, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    content, schema, flags = call
    (tmp_path / "data.csv").write_text(content)
    (tmp_path / "s.json").write_text(json.dumps(schema))
    said = {"--target": "label", "--schema": "s.json", "--out": f"model{uuid4()}"}
    said |= dict(zip(flags[::2], flags[1::2], strict=True))
    code = main(["train", "data.csv", *[word for pair in said.items() for word in pair]])
    assert code in (0, 2)
    assert_kept(tmp_path, capsys)


def test_predicting(capsys, tmp_path, monkeypatch):
    """By a model that was trained without the token."""
    monkeypatch.chdir(tmp_path)
    train_small(tmp_path, "--epsilon", "8")
    for cell in CELLS:
        for column in range(3):
            (tmp_path / "data.csv").write_text(table([(3, column, cell)]))
            (tmp_path / "predicted.csv").unlink(missing_ok=True)
            for out in ([], ["--out", "predicted.csv"])[: 2 if cell in CELLS[:3] else 1]:
                assert main(["predict", "model/model.json", "data.csv", *out]) in (0, 2)
                assert_kept(tmp_path, capsys)


def test_arrays(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.full((40, 2), float(NUMBER))
    for arrays in (
        {"x": rows, "y": np.array([TOKEN] * 40)},
        {"x": rows.astype(complex), "y": np.zeros(40)},
        {"x": np.array([[TOKEN]] * 40, dtype=object), "y": np.zeros(40)},
        {"x": np.zeros((40, 2, 2)) + float(NUMBER), "y": np.zeros(40)},
        {"x": rows, "y": np.zeros(39)},
        {"x": rows.astype("datetime64[s]"), "y": np.zeros(40)},
        {"x": np.array([TOKEN.encode()] * 40), "y": np.zeros(40)},
    ):
        np.savez(tmp_path / "data.npz", **arrays)
        (tmp_path / "s.json").write_text('{"*": {"range": [0, 6]}}')
        words = ["train", "data.npz", "--target", "y", "--classes", "0,1", "--schema", "s.json"]
        words += ["--out", "model", "--force"]
        assert main(words) in (0, 2)
        assert_kept(tmp_path, capsys, besides=("data.npz",))


def test_a_first_row_is_not_taken_for_names(capsys, tmp_path, monkeypatch):
    """Names are published; without a header, `--target 1` may be found in a row."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{NUMBER},37,1", *(f"{k % 7},{20 + k},{k % 2}" for k in range(60))]
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "s.json").write_text('{"*": {"range": [0, 100]}}')
    words = ["train", "data.csv", "--classes", "0,1", "--schema", "s.json", "--out", "model"]
    assert main([*words, "--target", "1"]) == 2
    assert_kept(tmp_path, capsys)
    (tmp_path / "data.csv").write_text("\n".join(["0,1,2", *rows[1:]]) + "\n")
    assert main([*words, "--target", "2"]) == 0
