"""What those who package, cite or review the library rely on."""

import re
import tomllib
from pathlib import Path

import pytest

import lastiterate as li

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_in_one_place_and_others_follow_it():
    assert "version" in PROJECT["project"]["dynamic"]
    for file in ("CITATION.cff", "conda/recipe.yaml"):
        (stated,) = re.findall(
            r'^\s*version: "?(\d[\w.]*)"?$', (ROOT / file).read_text(), re.MULTILINE
        )
        assert stated == li.__version__


def test_the_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    for needed in PROJECT["project"]["dependencies"]:
        name, limits = re.fullmatch(r"([\w-]+)([^;]*)(?:;.*)?", needed).groups()
        assert f"- {name} {limits}\n" in recipe


def test_numbers_of_the_paper():
    text = " ".join((ROOT / "paper" / "paper.md").read_text().split())
    row = re.search(r"^\| 50,000 .*$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]
    longer = re.search(r"^\| the same, 300 .*$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]
    _, _, every, last, shuffled, *_ = (cell.strip() for cell in row.split("|"))
    _, _, every_longer, last_longer, *_ = (cell.strip() for cell in longer.split("|"))
    assert f"has epsilon {every} after 30 epochs" in text
    assert f"and {every_longer} after 300; its last iterate has {last} after either" in text
    assert last == last_longer
    assert f"and {shuffled} with shuffled batches" in text
    most = {"Poisson": li.PoissonSampled, "shuffled": li.ShuffledEachEpoch}
    stated = re.search(r"at most (\S+) with Poisson batches and (\S+) with shuffled", text).groups()
    for number, rule in zip(stated, most.values(), strict=True):
        run = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(smoothness=1.05, regulariser=0.05, lipschitz=2.0),
            batches=rule(4_000, 200),
            clip_norm=2.0,
            noise_multiplier=2.0,
            steps=600,
            step_size=0.5,
        )
        found = li.account(run).epsilon(1e-5)
        assert float(number) - 0.001 <= found <= float(number)


def test_every_target_that_a_workflow_calls_exists():
    makefile = (ROOT / "Makefile").read_text()
    folder = ROOT / ".github" / "workflows"
    called = {
        name
        for file in folder.glob("*.yml")
        for name in re.findall(r"run: make ([\w-]+)$", file.read_text(), re.MULTILINE)
    }
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
    assert called <= set(phony)
    assert not folder.exists() or called >= {"test", "run", "docs"}


def jobs():
    """Every job of every workflow, by file and name."""
    yaml = pytest.importorskip("yaml")
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            yield (file.stem, name), job


def test_every_job_ends_and_nothing_is_published_untested():
    found = dict(jobs())
    if not found:
        pytest.skip("a source distribution has no workflows")
    assert all("timeout-minutes" in job for job in found.values() if "steps" in job)
    assert found["publish", "test"] == {"uses": "./.github/workflows/test.yml"}
    assert found["publish", "publish"]["needs"] == "test"


def test_every_python_that_is_promised_is_tested():
    promised = [
        each.rpartition(" ")[2]
        for each in PROJECT["project"]["classifiers"]
        if "Python :: 3." in each
    ]
    found = dict(jobs())
    if not found:
        pytest.skip("a source distribution has no workflows")
    assert found["test", "versions"]["strategy"]["matrix"]["python"] == promised
