"""What is made when the pages are built, looked at without building them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import lastiterate as li

from .pages import PAGES, ROOT


@pytest.fixture(autouse=True)
def _generators(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "generate")


def test_a_session_is_code_and_no_quotation():
    from docstrings import as_markdown

    text = as_markdown("A run.\n\n>>> run = 1\n>>> run\n1\n")
    outside = re.sub(r"```pycon\n.*?\n```", "", text, flags=re.DOTALL)
    assert "```pycon\n>>> run = " in text
    assert ">>>" not in outside


def test_sessions_under_their_heading_are_left_to_it():
    from docstrings import as_markdown

    text = "What.\n\nExamples\n--------\n>>> 1 + 1\n2\n"
    assert as_markdown(text) == text


def test_flags_that_describe_a_run_are_listed_once(monkeypatch):
    import commands_page

    monkeypatch.setattr(commands_page, "_SHOWN", ())
    text = commands_page.text()
    for flag in ("--noise-multiplier", "--diameter", "--releases"):
        assert len(re.findall(rf"^  {flag} ", text, re.MULTILINE)) == 1, flag
    section = text.partition("## Describing a run")[2].partition("\n## ")[0]
    assert "  --noise-multiplier " in section
    assert "Show this message" not in section
    assert "Usage: lastiterate account [RUN] [OPTIONS]" in text


def test_no_parameter_shares_its_description():
    """On the pages each of several would get the text that is about all of them."""
    shared = re.compile(r"^    \w+(?:, \w+)+ : ", re.MULTILINE)
    for name in ("account", "calibrate", "plan", "langevin", "TrainingRun", "Loss"):
        assert not shared.search(getattr(li, name).__doc__), name


def test_the_page_to_play_on_has_the_librarys_numbers(monkeypatch):
    import explorer

    from lastiterate._display import up
    from lastiterate.explore.page_runs import run_from_page

    first = explorer.PRESETS[explorer.FIRST]
    monkeypatch.setattr(explorer, "PRESETS", {explorer.FIRST: first})
    monkeypatch.setattr(explorer, "_NOISE", (1.0, 2.0))
    monkeypatch.setattr(explorer, "_EPOCHS", (0.5, 1.0))
    monkeypatch.setattr(explorer, "ProcessPoolExecutor", lambda: ThreadPoolExecutor(1))
    files = explorer.all_of_it()
    told = json.loads(files["try/answers/preset-0.json"])
    assert len(told) == 4
    for key, answers in told.items():
        noise, epochs = map(float, key.split("|"))
        run = run_from_page(first | {"noise_multiplier": noise, "epochs": epochs})
        epsilon = li.account(run).epsilon(1e-7)
        assert answers["account"]["epsilon_text"] == up(epsilon)
        for over, here in (("epochs", epochs), ("noise", noise)):
            curve = answers[f"curve/{over}"]
            at = curve["x"].index(here)
            assert curve["curves"][answers["account"]["bound"]][at] == epsilon
    page = files["try/index.html"]
    for name in re.findall(r'(?:src|href)="(page/[^"]+\.(?:js|css|svg))"', page):
        assert f"try/{name}" in files
    assert [name for name in files if name.endswith(".html")] == ["try/index.html"]
    assert f"lastiterate {li.__version__}" in page


def test_the_demo_installs_no_tools():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^run: \$\(READY\)", text, re.MULTILINE)
    recipe = text[text.index("$(READY): pyproject.toml") : text.index("$(TOOLS): pyproject.toml")]
    assert '-e ".[sklearn,plot]"' in recipe
    assert "dev" not in recipe
    assert re.search(r"^lint: \$\(TOOLS\)", text, re.MULTILINE)


MARKED = [page for page in PAGES if "<!-- table: " in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.stem)
def test_tables_are_as_computed(page):
    """`python docs/generate/tables.py` writes them."""
    from tables import filled_in

    text = page.read_text(encoding="utf-8")
    assert filled_in(text) == text


def test_every_table_is_on_a_page():
    from tables import TABLES

    marked = [re.findall(r"<!-- table: ([\w-]+) -->", page.read_text()) for page in MARKED]
    assert {each for some in marked for each in some} == TABLES.keys()
