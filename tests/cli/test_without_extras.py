"""A plain installation: what needs an extra names it, everything else works."""

import json
import shutil
import subprocess
import sys

import pytest

from .people import SHUFFLED

RUN = [*SHUFFLED, "--batches", "cyclic"]
EXTRAS = ["sklearn", "cryptography", "dask", "distributed", "matplotlib", "joblib", "pyarrow"]
# Each command once, in one process that has none of them.
PLAIN = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({EXTRAS}))
from lastiterate.cli import main
answers = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    answers.append((code, out.getvalue(), err.getvalue()))
json.dump(answers, sys.stdout)
"""
MODEL = ["--model", "trained/model.json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, _people):
    """A table, and a model that somebody trained on it."""
    path = tmp_path_factory.mktemp("plain") / "people"
    shutil.copytree(_people, path)
    (path / "data.parquet").write_bytes(b"PAR1")
    (path / "results.json").write_text(json.dumps({"a": {"1": [0.5], "2": [0.6]}}))
    return path


NEEDED = {
    ("train", "t.csv", "--target", "rich", "--out", "other"): "sklearn",
    ("demo", "--out", "other"): "sklearn",
    ("plot", "tradeoff", *RUN, "--out", "other"): "plot",
    ("plot", "accuracy-by-epsilon", "results.json", "--out", "other"): "plot",
    ("account", *RUN, "--html", "other"): "plot",
    ("predict", "trained/model.json", "data.parquet", "--out", "other"): "tables",
    ("audit", *MODEL, "--runs", "20", "--jobs", "2"): "audit",
    ("audit", *MODEL, "--cluster", "tcp://127.0.0.1:8786"): "dask",
}
NOTHING_NEEDED = {
    ("account", *RUN): "<- used",
    ("verify", "trained/certificate.json", *MODEL): "holds: epsilon = 1.99",
    ("predict", "trained/model.json", "t.csv"): "yes",
    ("audit", *MODEL, "--runs", "20"): "not refuted",
}


@pytest.fixture(scope="module")
def plain(folder):
    """What each command answers: a code, and what it prints and says."""
    asked = [*NEEDED, *NOTHING_NEEDED]
    command = [sys.executable, "-W", "error", "-c", PLAIN]
    ran = subprocess.run(
        command, cwd=folder, input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return dict(zip(asked, json.loads(ran.stdout), strict=True))


@pytest.mark.parametrize("words", NEEDED, ids=lambda words: " ".join(words[:2]))
def test_what_needs_an_extra_names_it(plain, folder, words):
    code, printed, said = plain[words]
    assert code == 2
    assert f"pip install 'lastiterate[{NEEDED[words]}]'" in said
    assert "Traceback" not in said
    assert printed == ""
    assert not list(folder.glob("other*"))


def test_a_module_that_needs_one_names_it():
    hidden = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); import lastiterate.dask"
    ran = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, check=False
    )
    assert "pip install 'lastiterate[dask]'" in ran.stderr


@pytest.mark.parametrize("words", NOTHING_NEEDED, ids=lambda words: words[0])
def test_a_reviewer_needs_none(plain, words):
    code, printed, said = plain[words]
    assert code == 0, said
    assert NOTHING_NEEDED[words] in printed
