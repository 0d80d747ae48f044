"""Whatever is typed or read: one line, exit code 2, never a traceback."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lastiterate.certificate.fields import digest as digest_of
from lastiterate.cli import main
from tests.cli import malformed

QUICK, ALL = 30, 400  # examples of each of the five kinds below: 150 and 2,000


def some(examples):
    return settings(
        max_examples=examples,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def refuses(capsys, words, codes=(2,)):
    code = main(words)
    said = capsys.readouterr()
    assert code in codes, (words, code, said)
    if code == 2:
        assert said.out == "", words
        assert len(said.err.splitlines()) == 1, (words, said.err)
        assert said.err.startswith("lastiterate: "), (words, said.err)
    assert "Traceback" not in said.err


def table(cells=()):
    """A CSV text with a few cells changed."""
    rows = [["size", "kind", "label"]]
    rows += [[str(k % 7), "ab"[k % 2], "yn"[k % 3 == 0]] for k in range(40)]
    for row, column, cell in cells:
        rows[row][column] = cell
    return "\n".join(",".join(row) for row in rows) + "\n"


SCHEMA = {
    "size": {"range": [0, 6]},
    "kind": {"values": ["a", "b"]},
    "label": {"values": ["y", "n"]},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a table, its schema, a model and its certificate."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "t.csv").write_text(table())
    (folder / "s.json").write_text(json.dumps(SCHEMA))
    words = ["train", str(folder / "t.csv"), "--target", "label", "--schema"]
    assert main([*words, str(folder / "s.json"), "--out", str(folder)]) == 0
    return folder


def write(folder, name, content):
    """A file that was not there before, as hypothesis shares the folder among its examples."""
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
    return str(file)


def each_kind(test):
    """The same test with few examples every day, and with all of them when there is time."""
    return pytest.mark.parametrize(
        "examples", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)], ids=["quick", "all"]
    )(test)


@each_kind
def test_command_lines(capsys, examples):
    @some(examples)
    @given(words=malformed.COMMAND_LINES)
    def holds(words):
        refuses(capsys, words)

    holds()


@each_kind
def test_run_files(capsys, tmp_path, examples):
    @some(examples)
    @given(content=malformed.RUN_FILES, kind=st.sampled_from(["json", "toml"]))
    def holds(content, kind):
        refuses(capsys, ["account", write(tmp_path, f"run.{kind}", content)])

    holds()


BAD_CELLS = [
    [(3, 0, "")], [(3, 0, "x")], [(3, 0, "nan")], [(40, 0, "inf")], [(3, 0, "1,2")],
    [(0, 0, "kind")], [(0, 2, "")], [(3, 0, "1e999")], [(5, 0, "1\n")], [(7, 1, "\x00,")],
]  # fmt: skip
BAD_FLAGS = {
    "--epsilon": [*malformed.NO_NUMBER, "0", "101", "1e9"],
    "--delta": [*malformed.NO_NUMBER, "0", "1"],
    "--feature-bound": [*malformed.NO_NUMBER, "0"], "--adjacency": malformed.NO_CHOICE,
    "--epochs": malformed.NO_COUNT, "--target": ["", "x", "Label"],
    "--schema": ["missing.json", ".", ""], "--out": ["t.csv/x", "\x00"],
    "--clip-norm": [*malformed.NO_NUMBER, "0"],
    "--class-prior": ["", "y", "y=", "y=0", "y=1", "y=nan", "y=2", "x=0.1", "y=0.1,n=0.1", "\x00"],
}  # fmt: skip


CUT, BINNED = ("size", "cuts"), ("size", "bins")


@st.composite
def training(draw):
    """What is wrong with a call of `train`: table, schema, or a flag."""
    what = draw(st.sampled_from(["cells", "bytes", "schema", "flag"]))
    content, kind, schema, flags = table(), "csv", SCHEMA, {}
    if what == "cells":
        content = table(draw(st.sampled_from(BAD_CELLS)))
    elif what == "bytes":
        content, kind = draw(malformed.BYTES), draw(st.sampled_from(["csv", "npz", "txt"]))
    elif what == "schema":
        column, word = draw(st.sampled_from([("size", "range"), ("kind", "values"), CUT, BINNED]))
        path = draw(st.sampled_from([(column,), (column, word)]))
        if path == CUT:
            schema = SCHEMA | {"size": {"cuts": [2, 4]}}
        elif path == BINNED:
            schema = SCHEMA | {"size": {"range": [0, 6], "bins": 3}}
        schema = malformed.changed(schema, path, draw(malformed.JUNK))
        if isinstance(schema["kind"], dict) and schema["kind"].get("values"):
            schema = draw(st.sampled_from([[], 3, "x", {"size": {"range": [6, 0]}}]))
    else:
        flag = draw(st.sampled_from(list(BAD_FLAGS)))
        flags = {flag: draw(st.sampled_from(BAD_FLAGS[flag]))}
    return content, kind, schema, flags


@each_kind
def test_tables_and_schemas(capsys, tmp_path, monkeypatch, examples):
    monkeypatch.chdir(tmp_path)

    @some(examples)
    @given(call=training())
    def holds(call):
        content, kind, schema, flags = call
        write(tmp_path, "t.csv", table())
        data = write(tmp_path, f"data.{kind}", content)
        said = {"--target": "label", "--schema": write(tmp_path, "s.json", json.dumps(schema))}
        refuses(capsys, ["train", data, *malformed.spoken({**said, "--out": "model", **flags})])
        assert not (tmp_path / "model" / "model.json").exists()

    holds()


@each_kind
def test_certificates(capsys, trained, tmp_path, examples):
    record = json.loads((trained / "certificate.json").read_text())

    @some(examples)
    @given(
        path=st.sampled_from(list(malformed.paths(record))),
        how=st.sampled_from(["gone", "misspelt", "other", "bytes"]),
        value=malformed.JUNK,
        content=malformed.BYTES,
    )
    def holds(path, how, value, content):
        if how == "bytes":
            refuses(capsys, ["verify", write(tmp_path, "c.json", content)])
            return
        options = {"gone": how == "gone", "misspelt": how == "misspelt"}
        changed = malformed.changed(record, path, value, **options)
        assume(changed != record)  # losses are convex as it is
        text = json.dumps(changed)
        # A certificate that can be read but was changed is answered: it does not hold.
        refuses(capsys, ["verify", write(tmp_path, "c.json", text)], codes=(1, 2))

    holds()


@each_kind
def test_models(capsys, trained, tmp_path, examples):
    record = json.loads((trained / "model.json").read_text())
    needed = [path for path in malformed.paths(record) if path != ("target",)]

    @some(examples)
    @given(
        path=st.sampled_from(needed),
        how=st.sampled_from(["gone", "misspelt", "other", "bytes"]),
        value=malformed.JUNK,
        content=malformed.BYTES,
    )
    def holds(path, how, value, content):
        if how != "bytes":
            gone = how == "gone"
            changed = malformed.changed(record, path, value, gone=gone, misspelt=how == "misspelt")
            assume(changed != record)  # a model that is not centred says None itself
            content = json.dumps(changed)
        model = write(tmp_path, "m.json", content)
        refuses(capsys, ["predict", model, str(trained / "t.csv")])

    holds()


def test_numbers_that_are_no_array_are_no_model(capsys, trained, tmp_path):
    record = json.loads((trained / "model.json").read_text())
    for coef in ([[1.0]], [[1.0, 2.0], [3.0]], np.zeros((5, 3)).tolist(), [["x", "y", "z"]]):
        model = write(tmp_path, "m.json", json.dumps({**record, "coef": coef}))
        refuses(capsys, ["predict", model, str(trained / "t.csv")])


@pytest.mark.parametrize(
    "name, value",
    [
        ("coef", "x"), ("coef", None), ("coef", [[1e999] * 3]), ("intercept", [1.0, 2.0]),
        ("parameters", {}), ("parameters", [[{}]]), ("parameters", None), ("columns", 5),
        ("columns", [[]]), ("columns", None), ("schema", []), ("schema", None),
        ("schema", {"size": 5, "kind": {}}), ("schema", {"size": {"range": [1, 1]}}),
        ("classes", []), ("classes", 3), ("classes", ["y"]), ("classes", None), ("target", None),
        ("feature_bound", "x"), ("feature_bound", None), ("feature_bound", -1.0),
    ],
)  # fmt: skip
def test_a_digest_does_not_make_a_model(capsys, trained, tmp_path, name, value):
    record = json.loads((trained / "model.json").read_text())
    del record["digest"]
    record[name] = value
    if value is None:
        del record[name]
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    model = write(tmp_path, "m.json", json.dumps(record | {"digest": digest}))
    refuses(capsys, ["predict", model, str(trained / "t.csv")])
    refuses(capsys, ["verify", str(trained / "certificate.json"), "--model", model])


def test_a_certificate_with_a_number_beyond_all_does_not_hold(capsys, trained, tmp_path):
    record = json.loads((trained / "certificate.json").read_text())
    for epsilon in (10**400, float("1e999"), True, "1"):
        record["guarantee"]["epsilon"] = epsilon
        text = json.dumps(record | {"digest": digest_of(record)}).replace("Infinity", "1e999")
        refuses(capsys, ["verify", write(tmp_path, "c.json", text)], codes=(1,))


BAD_QUESTIONS = {
    "--top": malformed.NO_COUNT,
    "--threshold": [*malformed.NO_NUMBER, "1", "2"],
    "--positive": ["", "x", "Y", "y", "\x00"],  # y is a label, but nothing is asked about it
    "--id": ["", "x"],
}


@pytest.mark.parametrize("flag", list(BAD_QUESTIONS))
def test_questions_to_a_model(capsys, trained, flag):
    for value in BAD_QUESTIONS[flag]:
        refuses(capsys, ["predict", str(trained), str(trained / "t.csv"), flag, value])


def damaged_archives():
    """Archives of arrays that fail in the middle, each in another way."""
    whole = io.BytesIO()
    np.savez_compressed(whole, x=np.arange(80.0).reshape(40, 2), y=np.zeros(40))
    good = whole.getvalue()
    data = 30 + int.from_bytes(good[26:28], "little") + int.from_bytes(good[28:30], "little")
    yield "stream", good[:data] + b"\xff" * 8 + good[data + 8 :]
    central = good.index(b"PK\x01\x02")
    yield "method", good[: central + 10] + b"\x63\x00" + good[central + 12 :]
    yield "version", good[: central + 6] + b"\xff\x00" + good[central + 8 :]
    yield "encrypted", good[: central + 8] + b"\x01\x00" + good[central + 10 :]
    huge = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(huge, header)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("y.npy", huge.getvalue())
    yield "huge", packed.getvalue()


@pytest.mark.parametrize("kind", ["stream", "method", "version", "encrypted", "huge"])
def test_damaged_archives(capsys, tmp_path, kind):
    data = write(tmp_path, "data.npz", dict(damaged_archives())[kind])
    refuses(capsys, ["train", data, "--target", "y", "--classes", "0,1", "--out", str(tmp_path)])
