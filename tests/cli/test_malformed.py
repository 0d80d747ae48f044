"""Whatever is typed or read: one line, exit code 2, never a traceback."""

import copy
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

from .people import SHUFFLED

# Of each of the five kinds below; the slow job, whose examples are fresh ones, has time for more.
EXAMPLES = 20 if settings.default.derandomize else 400
SOME = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

RUN = {
    "--examples": "600", "--batch-size": "15", "--epochs": "5", "--step-size": "0.05",
    "--noise-std": "0.1", "--sensitivity": "10", "--smoothness": "32.5",
    "--strong-convexity": "0.002",
}  # fmt: skip
RECORD = {
    "loss": {"smoothness": 32.5, "strong_convexity": 0.002, "convex": True},
    "batches": {"kind": "Cyclic", "examples": 600, "batch_size": 15},
    "sensitivity": 10.0, "steps": 200, "step_size": 0.05, "noise_std": 0.1,
    "domain": {"kind": "Unbounded"}, "adjacency": "replace", "releases": "last-iterate",
}  # fmt: skip
SCHEMA = {
    "size": {"range": [0, 6]},
    "kind": {"values": ["a", "b"]},
    "label": {"values": ["y", "n"]},
}

NO_NUMBER = ["", "x", "nan", "-nan", "inf", "1e400", "-1", "-1e-9", "0x10", "1,5", "1_", "--",
             "\x00"]  # fmt: skip
NO_COUNT = [*NO_NUMBER, "0", "1.5", "1e-3", "15,00", "9" * 30]
NO_CHOICE = ["", "x", "Replace", "shuffled", "last", "\x00", "{}", "nan"]
BAD_VALUES = {
    "--examples": NO_COUNT, "--batch-size": [*NO_COUNT, "601"], "--epochs": [*NO_NUMBER, "0"],
    "--steps": NO_COUNT, "--step-size": [*NO_NUMBER, "0"], "--noise-std": [*NO_NUMBER, "0"],
    "--sensitivity": [*NO_NUMBER, "0"], "--smoothness": [*NO_NUMBER, "1e-5"],
    "--strong-convexity": [*NO_NUMBER, "33"], "--regulariser": [*NO_NUMBER, "33"],
    "--lipschitz": [*NO_NUMBER, "0", "4.9"], "--diameter": [*NO_NUMBER, "0"],
    "--release-noise-std": NO_NUMBER, "--clip-norm": [*NO_NUMBER, "0", "4.9"],
    "--noise-multiplier": [*NO_NUMBER, "1"], "--batches": NO_CHOICE, "--adjacency": NO_CHOICE,
    "--releases": NO_CHOICE, "--delta": [*NO_NUMBER, "0", "1", "2"],
}  # fmt: skip
COMMANDS = ["account", "calibrate", "compare"]
WORDS = st.text(st.characters(codec="utf-8"), max_size=6)


def spoken(flags):
    return [word for pair in flags.items() for word in pair]


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


def write(folder, name, content):
    """A file that was not there before, as hypothesis shares the folder among its examples."""
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
    return str(file)


def train_small(folder, *more):
    """A folder with a table, its schema, a model and its certificate."""
    (folder / "t.csv").write_text(table())
    (folder / "s.json").write_text(json.dumps(SCHEMA))
    words = ["train", str(folder / "t.csv"), "--target", "label", "--schema"]
    assert main([*words, str(folder / "s.json"), "--out", str(folder / "model"), *more]) == 0
    return folder / "model"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def data(tmp_path):
    return write(tmp_path, "t.csv", table())


@st.composite
def wrong_flags(draw):
    """One that is wrong, or one that is missing."""
    command, flags = draw(st.sampled_from(COMMANDS)), dict(RUN)
    if draw(st.booleans()):
        flag = draw(st.sampled_from(list(BAD_VALUES)))
        if flag == "--steps":
            del flags["--epochs"]
        return [command, *spoken({**flags, flag: draw(st.sampled_from(BAD_VALUES[flag]))})]
    needed = ["--examples", "--batch-size", "--epochs", "--sensitivity"]
    # What calibrate seeks it need not be told.
    del flags[draw(st.sampled_from(needed + ["--noise-std"] * (command != "calibrate")))]
    return [command, *spoken(flags)]


@st.composite
def words_too_many(draw):
    """An unknown flag, a flag without its value, a flag beside what says the same."""
    words = [draw(st.sampled_from(COMMANDS)), *spoken(RUN)]
    more = draw(
        st.sampled_from(
            [["--smoothnes", "3"], ["--steps", "7"], ["--noise-multiplier", "2"], ["--delta"],
             ["run.txt"], ["missing.toml"], ["missing.json"], [".json"], ["a.toml", "b.toml"],
             ["--json=1"], ["--non-convex", "--non-convexx"], ["-x"], ["--including", "nothing"]]
        )
    )  # fmt: skip
    if "--including" in more:
        words[0] = "account"
    where = draw(st.integers(1, len(words))) if len(more) == 1 and more[0] != "--delta" else None
    return words + more if where is None else [*words[:1], *more, *words[1:]]


COMMAND_LINES = st.one_of(
    wrong_flags(),
    words_too_many(),
    st.builds(
        lambda word, more: [f"{word}?", *more],
        WORDS.filter(lambda word: word not in COMMANDS and not word.startswith("-")),
        st.lists(WORDS, max_size=3),
    ),
    *(
        st.sampled_from(pool).map(lambda value, name=name: ["calibrate", *spoken(RUN), name, value])
        for name, pool in (("--epsilon", [*NO_NUMBER, "100.1", "1e9"]), ("--over", NO_CHOICE))
    ),
    st.builds(lambda word: ["bounds", "--explain", f"{word}?"], WORDS),
    st.builds(lambda word: ["reproduce", f"{word}?"], WORDS),
)
ANY_WORDS = st.lists(
    st.one_of(
        st.sampled_from(["account", "calibrate", "bounds", "verify", "predict", "--json",
                         "--explain", *SHUFFLED[::2]]),
        st.sampled_from([*NO_NUMBER, "0", "-", "1.5", "10"]),
        st.text(max_size=6),
    ),
    max_size=8,
)  # fmt: skip


@SOME
@given(words=COMMAND_LINES, any_words=ANY_WORDS)
def test_command_lines(capsys, words, any_words):
    refuses(capsys, words)
    refuses(capsys, any_words, codes=(0, 1, 2))


JUNK = st.one_of(
    st.none(), st.booleans(), st.just(float("nan")), st.just(float("inf")), st.just(-1.0),
    st.text(max_size=4).map(lambda text: f"?{text}"), st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), st.just(10**400),
)  # fmt: skip


def paths(record, before=()):
    """Where the record has something."""
    for key, value in record.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def changed(record, path, value=None, how="other"):
    """A copy in which what is at the path is another value, gone, or under another name."""
    copied = copy.deepcopy(record)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    old = inner.pop(path[-1])
    if how == "misspelt":
        inner[f"{path[-1]}x"] = old
    elif how == "other":
        inner[path[-1]] = value
    return copied


# Left out, these have a default; changed to such values, they mean something.
OPTIONAL = [("loss", "smoothness"), ("loss", "strong_convexity"), ("loss", "convex"), ("domain",),
            ("adjacency",), ("releases",)]  # fmt: skip
FINE = [(("loss", "smoothness"), None), (("loss", "convex"), True), (("loss", "convex"), False)]
HOW = st.sampled_from(["gone", "misspelt", "other"])


@st.composite
def changed_records(draw):
    path, how = draw(st.sampled_from(list(paths(RECORD)))), draw(HOW)
    if how == "gone" and path in OPTIONAL:
        how = "other"
    value = draw(JUNK.filter(lambda value: not any(path == p and value is v for p, v in FINE)))
    if path == ("loss",) and value == {}:
        value = "?"
    return json.dumps(changed(RECORD, path, value, how)).encode()


BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode(errors="replace")),
    st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b"\xff\xfe{}", b"null", b"[]", b"{}", b"3"]),
)
RUN_FILES = st.one_of(
    changed_records(),
    BYTES,
    st.integers(0, 250).map(lambda length: json.dumps(RECORD).encode()[:length]),
)


@SOME
@given(content=RUN_FILES, kind=st.sampled_from(["json", "toml"]))
def test_run_files(capsys, tmp_path, content, kind):
    refuses(capsys, ["account", write(tmp_path, f"run.{kind}", content)])


BAD_CELLS = [
    [(3, 0, "")], [(3, 0, "x")], [(3, 0, "nan")], [(40, 0, "inf")], [(3, 0, "1,2")],
    [(0, 0, "kind")], [(0, 2, "")], [(3, 0, "1e999")], [(5, 0, "1\n")], [(7, 1, "\x00,")],
]  # fmt: skip
BAD_FLAGS = {
    "--epsilon": [*NO_NUMBER, "0", "101", "1e9"], "--delta": [*NO_NUMBER, "0", "1"],
    "--feature-bound": [*NO_NUMBER, "0"], "--adjacency": NO_CHOICE, "--epochs": NO_COUNT,
    "--target": ["", "x", "Label"], "--schema": ["missing.json", ".", ""],
    "--out": ["t.csv/x", "\x00"], "--clip-norm": [*NO_NUMBER, "0"],
}  # fmt: skip
CUT, BINNED = ("size", "cuts"), ("size", "bins")


@st.composite
def trainings(draw):
    """What is wrong with a call of `train`: table, schema, or a flag."""
    what = draw(st.sampled_from(["cells", "bytes", "schema", "flag"]))
    content, kind, schema, flags = table(), "csv", SCHEMA, {}
    if what == "cells":
        content = table(draw(st.sampled_from(BAD_CELLS)))
    elif what == "bytes":
        content, kind = draw(BYTES), draw(st.sampled_from(["csv", "npz", "txt"]))
    elif what == "schema":
        column, word = draw(st.sampled_from([("size", "range"), ("kind", "values"), CUT, BINNED]))
        path = draw(st.sampled_from([(column,), (column, word)]))
        if path == CUT:
            schema = SCHEMA | {"size": {"cuts": [2, 4]}}
        elif path == BINNED:
            schema = SCHEMA | {"size": {"range": [0, 6], "bins": 3}}
        schema = changed(schema, path, draw(JUNK))
        if isinstance(schema["kind"], dict) and schema["kind"].get("values"):
            schema = draw(st.sampled_from([[], 3, "x", {"size": {"range": [6, 0]}}]))
    else:
        flag = draw(st.sampled_from(list(BAD_FLAGS)))
        flags = {flag: draw(st.sampled_from(BAD_FLAGS[flag]))}
    return content, kind, schema, flags


@SOME
@given(call=trainings())
def test_tables_and_schemas(capsys, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    content, kind, schema, flags = call
    write(tmp_path, "t.csv", table())
    table_file = write(tmp_path, f"data.{kind}", content)
    said = {"--target": "label", "--schema": write(tmp_path, "s.json", json.dumps(schema))}
    refuses(capsys, ["train", table_file, *spoken({**said, "--out": "model", **flags})])
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.parametrize("name", ["certificate", "model"])
@SOME
@given(draw=st.data())
def test_certificates_and_models(capsys, trained, tmp_path, data, draw, name):
    record = json.loads((trained / f"{name}.json").read_text())
    content = draw.draw(st.one_of(BYTES, st.none()))
    codes = (2,)
    if content is None:
        places = [path for path in paths(record) if (name, path) != ("model", ("target",))]
        path, how = draw.draw(st.sampled_from(places)), draw.draw(HOW)
        forged = changed(record, path, draw.draw(JUNK), how)
        assume(forged != record)  # losses are convex as it is, and a model may say None itself
        content = json.dumps(forged)
        # A certificate that can be read but was changed is answered: it does not hold.
        codes = (1, 2) if name == "certificate" else (2,)
    file = write(tmp_path, "c.json", content)
    refuses(capsys, ["verify", file] if name == "certificate" else ["predict", file, data], codes)


def test_a_digest_does_not_make_a_model(capsys, trained, tmp_path, data):
    whole = json.loads((trained / "model.json").read_text())
    del whole["digest"]
    for name, value in (
        ("coef", "x"), ("coef", None), ("coef", [[1e999] * 3]), ("coef", [[1.0]]),
        ("coef", [[1.0, 2.0], [3.0]]), ("coef", np.zeros((5, 3)).tolist()),
        ("coef", [["x", "y", "z"]]), ("intercept", [1.0, 2.0]),
        ("parameters", {}), ("parameters", [[{}]]), ("parameters", None), ("columns", 5),
        ("columns", [[]]), ("columns", None), ("schema", []), ("schema", None),
        ("schema", {"size": 5, "kind": {}}), ("schema", {"size": {"range": [1, 1]}}),
        ("classes", []), ("classes", 3), ("classes", ["y"]), ("classes", None), ("target", None),
        ("feature_bound", "x"), ("feature_bound", None), ("feature_bound", -1.0),
    ):  # fmt: skip
        record = whole | {name: value}
        if value is None:
            del record[name]
        digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        model = write(tmp_path, "m.json", json.dumps(record | {"digest": digest}))
        refuses(capsys, ["predict", model, data])
        refuses(capsys, ["verify", str(trained / "certificate.json"), "--model", model])


def test_a_certificate_with_a_number_beyond_all_does_not_hold(capsys, trained, tmp_path):
    record = json.loads((trained / "certificate.json").read_text())
    for epsilon in (10**400, float("1e999"), True, "1"):
        record["guarantee"]["epsilon"] = epsilon
        text = json.dumps(record | {"digest": digest_of(record)}).replace("Infinity", "1e999")
        refuses(capsys, ["verify", write(tmp_path, "c.json", text)], codes=(1,))


@pytest.mark.parametrize(
    "flag, values",
    [
        ("--top", NO_COUNT),
        ("--threshold", [*NO_NUMBER, "1", "2"]),
        # y is a label, but nothing is asked about it.
        ("--positive", ["", "x", "Y", "y", "\x00"]),
        ("--id", ["", "x"]),
    ],
)
def test_questions_to_a_model(capsys, trained, data, flag, values):
    for value in values:
        refuses(capsys, ["predict", str(trained), data, flag, value])


def damaged_archives():
    """Archives of arrays that fail in the middle, each in another way."""
    whole = io.BytesIO()
    np.savez_compressed(whole, x=np.arange(80.0).reshape(40, 2), y=np.zeros(40))
    good = whole.getvalue()
    start = 30 + int.from_bytes(good[26:28], "little") + int.from_bytes(good[28:30], "little")
    central = good.index(b"PK\x01\x02")
    yield good[:start] + b"\xff" * 8 + good[start + 8 :]  # the stream
    for at, damage in ((10, b"\x63\x00"), (6, b"\xff\x00"), (8, b"\x01\x00")):
        # An unknown method, an unknown version, encrypted.
        yield good[: central + at] + damage + good[central + at + 2 :]
    huge, packed = io.BytesIO(), io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(huge, header)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("y.npy", huge.getvalue())
    yield packed.getvalue()


def test_damaged_archives(capsys, tmp_path):
    for archive in damaged_archives():
        file, out = write(tmp_path, "data.npz", archive), str(tmp_path)
        refuses(capsys, ["train", file, "--target", "y", "--classes", "0,1", "--out", out])
