"""A plain installation: what needs an extra names it, everything else works."""

import json
import subprocess
import sys

import numpy as np
import pytest

from lastiterate.cli import main

from .test_commands import RUN

EXTRAS = ["sklearn", "cryptography", "matplotlib", "joblib", "pyarrow"]
PLAIN = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))
from lastiterate.cli import main
sys.exit(main(sys.argv[1:]))
"""
MODEL = ["--model", "m/model.json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model that somebody trained on it."""
    path = tmp_path_factory.mktemp("plain")
    x = np.random.default_rng(0).uniform(-1, 1, 200)
    lines = [f"{value:.3f},{'yes' if value > 0 else 'no'}" for value in x]
    (path / "data.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    (path / "data.parquet").write_bytes(b"PAR1")
    (path / "results.json").write_text(json.dumps({"a": {"1": [0.5], "2": [0.6]}}))
    words = ["train", str(path / "data.csv"), "--target", "y", "--out", str(path / "m")]
    assert main(words) == 0
    return path


def plain(folder, *words):
    command = [sys.executable, "-W", "error", "-c", PLAIN, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "extra, words",
    [
        ("sklearn", ["train", "data.csv", "--target", "y", "--out", "other"]),
        ("sklearn", ["demo", "--out", "other"]),
        ("plot", ["plot", "tradeoff", *RUN, "--out", "other"]),
        ("plot", ["plot", "accuracy-by-epsilon", "results.json", "--out", "other"]),
        ("plot", ["account", *RUN, "--html", "other"]),
        ("parquet", ["predict", "m/model.json", "data.parquet", "--out", "other"]),
        ("audit", ["audit", *MODEL, "--runs", "20", "--jobs", "2"]),
    ],
)
def test_what_needs_an_extra_names_it(folder, extra, words):
    ran = plain(folder, *words)
    assert ran.returncode == 2, ran
    assert f"pip install 'lastiterate[{extra}]'" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""
    assert not list(folder.glob("other*"))


@pytest.mark.parametrize(
    "words, printed",
    [
        (["account", *RUN], "random-order/shuffled-once  <- used"),
        (["verify", "m/certificate.json", *MODEL], "holds: epsilon = 1.0000 "),
        (["predict", "m/model.json", "data.csv"], "yes"),
        (["audit", *MODEL, "--runs", "20"], "not refuted"),
    ],
)
def test_a_reviewer_needs_none(folder, words, printed):
    ran = plain(folder, *words)
    assert ran.returncode == 0, ran.stderr
    assert printed in ran.stdout
