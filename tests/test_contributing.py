"""CONTRIBUTING.md, followed to the letter on a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT, blocks
from tests.test_architecture import STOREYS

PAGE = ROOT / "CONTRIBUTING.md"
NEW = (
    "to-and-fro or LogCosh or feldman or gaussian"
    " or storey or upwards or circular or too_long or declared"
)
CONTRACTS = [
    "tests/test_architecture.py",
    "tests/test_open_sets.py",
    "tests/bounds/test_catalogue.py",
    "tests/bounds/test_every_bound.py",
    "tests/cli/test_cli.py",
    "tests/docs/test_pages.py::test_every_estimator_is_listed",
    "tests/certificate/test_issue.py",
    "tests/linear_model/test_estimator.py",
    "tests/train/test_objectives.py",
]


def write(root, block):
    """A block of Python that says where it goes: at the end of a file, or in one of its own."""
    where, code = block.text.split("\n", 1)
    place = re.fullmatch(r"# (at the end of )?(src/\S+\.py)", where)
    assert place, f"say in a comment where this goes: {where}"
    file = root / place[2]
    assert file.exists() == bool(place[1])
    file.write_text(file.read_text() + code if place[1] else code)


def apply(root, block):
    """A block of changes: for each file hunks, whose lines there must be found exactly once."""
    for change in re.split(r"^\+\+\+ ", block.text, flags=re.MULTILINE)[1:]:
        name, hunks = change.split("\n", 1)
        text = (root / name).read_text()
        for hunk in hunks.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            before = "\n" + "".join(line[1:] for line in lines if line[0] in " -")
            after = "\n" + "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1, f"not once in {name}:{before}"
            text = text.replace(before, after)
        (root / name).write_text(text)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A folder whose src/ has been changed as the page says."""
    root = tmp_path_factory.mktemp("followed")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for block in blocks(PAGE):
        if block.language == "python":
            write(root, block)
        elif block.language == "diff":
            apply(root, block)
    return root


def ran(root, *module, cwd=None):
    """A module of the changed sources' Python: all is well."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *module],
        cwd=cwd or root,
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_block_is_followed_or_run():
    found = blocks(PAGE)
    assert {block.language for block in found} == {"python", "diff", "pycon"}
    headings = re.findall(r"^## An? .*$", PAGE.read_text(), re.MULTILINE)
    assert len(headings) == sum(block.language == "pycon" for block in found) == 4


@pytest.mark.slow
def test_what_is_said_to_follow_does(followed):
    ran(followed, "doctest", "-o", "ELLIPSIS", str(PAGE))


def test_what_is_pasted_is_clean(followed):
    ran(followed, "ruff", "check", "--no-cache", "src")
    ran(followed, "ruff", "format", "--check", "--no-cache", "src")


def test_storeys_are_those_of_the_package():
    rows = re.findall(r"^  \d\. (.*?): (.*)$", PAGE.read_text(), re.MULTILINE)
    assert {name: set(re.findall(r"\w+", entries)) for name, entries in rows} == STOREYS
    assert [name for name, _ in rows] == list(STOREYS)


@pytest.mark.slow
def test_what_is_pasted_keeps_every_contract(followed):
    ran(followed, "mypy", "--cache-dir", os.devnull)
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-k", NEW]
    passed = ran(followed, "pytest", *options, *CONTRACTS, cwd=ROOT)
    assert int(passed.split(" passed")[0].split()[-1]) > 80
