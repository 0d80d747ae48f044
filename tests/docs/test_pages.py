"""Nothing on the pages is only text: code runs, commands run, names exist.

The blocks of Python are doctests, which pytest collects from the pages themselves.
"""

import json
import re
import shlex

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import lastiterate as li
from lastiterate import linear_model
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.cli import main
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from tests.certificate.test_signature import write_pair
from tests.slow import slow_if

from .pages import PAGES, ROOT, blocks, commands, name

# Commands that are not run here, and why.
NOT_RUN = {
    "lastiterate demo": "tests/cli/test_demo.py does, and looks at what it writes",
    "lastiterate reproduce bsa-table-6 --data FOLDER --seeds 10": "it needs MNIST, and minutes",
    "lastiterate explore": "it serves until it is interrupted; tests/browser opens it",
}
LANGUAGES = {"python", "pycon", "sh", "json", "diff"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder but for the small files that commands read."""
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 90, 2_000), rng.choice(["a", "b"], 2_000)
    income = np.where(age + 20 * (job == "a") > 60, ">50K", "<=50K")
    rows = [f"{x},{j},{y}" for x, j, y in zip(age, job, income, strict=True)]
    for table, part in (("people", rows), ("test", rows[:300])):
        (tmp_path / f"{table}.csv").write_text("\n".join(["age,job,income", *part]) + "\n")
    schema = {
        "age": {"range": [18, 90]},
        "job": {"values": ["a", "b"]},
        "income": {"values": ["<=50K", ">50K"]},
    }
    (tmp_path / "people.json").write_text(json.dumps(schema))
    write_pair(tmp_path, Ed25519PrivateKey.generate())
    monkeypatch.chdir(tmp_path)
    return tmp_path


# They calibrate, reproduce tables, or audit a trainer.
SLOW = {"docs/dp-sgd.md", "docs/research.md", "docs/review.md"}
with_commands = [page for page in PAGES if commands(page)]
accounted = set()  # which leaves nothing that other commands need: once is enough


@pytest.mark.parametrize("page", slow_if(lambda page: name(page) in SLOW, with_commands), ids=name)
def test_every_command_runs(page, folder, capsys):
    for line in commands(page):
        if line in NOT_RUN:
            continue
        words = shlex.split(line, comments=True)[1:]
        if tuple(words) in accounted:
            continue
        code = main(words)
        if words[0] == "account":
            accounted.add(tuple(words))
        assert code == 0, f"{line}\n{capsys.readouterr().err}"


def test_what_is_not_run_is_on_a_page():
    assert set(NOT_RUN) <= {line for page in PAGES for line in commands(page)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_executed_or_data(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, block
        # Blocks for Opacus are run by tests/opacus/test_accountant.py.
        elsewhere = any(one in block.text for one in ("from opacus import", "lt.EmptyBatches("))
        if block.language in ("python", "pycon") and not elsewhere:
            assert block.text.startswith(">>> "), block


def test_pytest_collects_every_page_with_code(request):
    coded = {page for page in PAGES if any(block.text.startswith(">>>") for block in blocks(page))}
    asked = request.config.getini("testpaths")
    assert coded <= {path for pattern in asked for path in ROOT.glob(pattern)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_bound_that_is_named_exists(page):
    pattern = r"\b(?:composition|fixed-order|random-order|lower|published/[a-z-]+)/[a-z-]+[a-z]"
    known = {*li.CATALOGUE, *LOWER_BOUNDS, *APPROXIMATIONS}
    assert set(re.findall(pattern, page.read_text(encoding="utf-8"))) <= known


def test_every_estimator_is_listed(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "generate")
    import estimators

    for page in ("linear-models.md", "api/training.md"):
        text = estimators.filled_in((ROOT / "docs" / page).read_text(encoding="utf-8"))
        assert "of estimators -->" not in text
        for model in linear_model.__all__:
            listed = f"::: lastiterate.linear_model.{model}" if "api" in page else f"| `{model}` |"
            assert listed in text or not hasattr(getattr(linear_model, model), "fit")


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    listed = set(re.findall(r"^::: lastiterate\.(\w+)$", pages, re.MULTILINE))
    assert listed >= set(li.__all__) - {"__version__"}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900
