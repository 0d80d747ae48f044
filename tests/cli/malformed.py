"""Command lines and files that are wrong by construction, in many ways."""

import copy
import json

from hypothesis import strategies as st

RUN = {
    "--examples": "600", "--batch-size": "15", "--epochs": "5", "--step-size": "0.05",
    "--noise-std": "0.1", "--sensitivity": "10", "--smoothness": "32.5",
    "--strong-convexity": "0.002",
}  # fmt: skip
RECORD = {
    "loss": {"smoothness": 32.5, "strong_convexity": 0.002, "convex": True},
    "batches": {"kind": "Cyclic", "examples": 600, "batch_size": 15},
    "sensitivity": 10.0,
    "steps": 200,
    "step_size": 0.05,
    "noise_std": 0.1,
    "domain": {"kind": "Unbounded"},
    "adjacency": "replace",
    "releases": "last-iterate",
}

NO_NUMBER = [
    "",
    "x",
    "nan",
    "-nan",
    "inf",
    "1e400",
    "-1",
    "-1e-9",
    "0x10",
    "1,5",
    "1_",
    "--",
    "\x00",
]
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


@st.composite
def flags_with_one_wrong(draw):
    flag = draw(st.sampled_from(list(BAD_VALUES)))
    flags = dict(RUN)
    if flag == "--steps":
        del flags["--epochs"]
    command = draw(st.sampled_from(COMMANDS))
    return [command, *spoken({**flags, flag: draw(st.sampled_from(BAD_VALUES[flag]))})]


@st.composite
def flags_with_one_missing(draw):
    needed = ["--examples", "--batch-size", "--epochs", "--noise-std", "--sensitivity"]
    flags = dict(RUN)
    missing = draw(st.sampled_from(needed))
    del flags[missing]
    # What calibrate seeks it need not be told.
    commands = [one for one in COMMANDS if (one, missing) != ("calibrate", "--noise-std")]
    return [draw(st.sampled_from(commands)), *spoken(flags)]


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


@st.composite
def unknown_commands(draw):
    word = draw(WORDS.filter(lambda word: word not in COMMANDS and not word.startswith("-")))
    return [f"{word}?", *draw(st.lists(WORDS, max_size=3))]


@st.composite
def wrong_targets(draw):
    name, pool = draw(
        st.sampled_from([("--epsilon", [*NO_NUMBER, "100.1", "1e9"]), ("--over", NO_CHOICE)])
    )
    return ["calibrate", *spoken(RUN), name, draw(st.sampled_from(pool))]


COMMAND_LINES = st.one_of(
    flags_with_one_wrong(),
    flags_with_one_missing(),
    words_too_many(),
    unknown_commands(),
    wrong_targets(),
    st.builds(lambda word: ["bounds", "--explain", f"{word}?"], WORDS),
    st.builds(lambda word: ["reproduce", f"{word}?"], WORDS),
)

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


def changed(record, path, value=None, *, gone=False, misspelt=False):
    """A copy in which what is at the path is another value, gone, or under another name."""
    copied = copy.deepcopy(record)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    old = inner.pop(path[-1])
    if misspelt:
        inner[f"{path[-1]}x"] = old
    elif not gone:
        inner[path[-1]] = value
    return copied


# Left out, these have a default; changed to such values, they mean something.
OPTIONAL = [("loss", "smoothness"), ("loss", "strong_convexity"), ("loss", "convex"), ("domain",),
            ("adjacency",), ("releases",)]  # fmt: skip
FINE = [(("loss", "smoothness"), None), (("loss", "convex"), True), (("loss", "convex"), False)]


@st.composite
def changed_records(draw):
    path = draw(st.sampled_from(list(paths(RECORD))))
    how = draw(st.sampled_from(["gone", "misspelt", "other"]))
    if how == "misspelt":
        return changed(RECORD, path, misspelt=True)
    if how == "gone" and path not in OPTIONAL:
        return changed(RECORD, path, gone=True)
    value = draw(JUNK.filter(lambda value: not any(path == p and value is v for p, v in FINE)))
    if path == ("loss",) and value == {}:
        value = "?"
    return changed(RECORD, path, value)


BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode(errors="replace")),
    st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b"\xff\xfe{}", b"null", b"[]", b"{}", b"3"]),
)
RUN_FILES = st.one_of(
    changed_records().map(lambda record: json.dumps(record).encode()),
    BYTES,
    st.integers(0, 250).map(lambda length: json.dumps(RECORD).encode()[:length]),
)
