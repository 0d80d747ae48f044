"""The notebooks of `examples/` run from top to bottom, and were saved with what they show."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from lastiterate.bounds.catalogue import CATALOGUE

FOLDER = Path(__file__).parent.parent.parent / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_five():
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_shows_bounds_that_exist(path):
    named = set(re.findall(r"bound(?: |='|=\")([a-z-]+/[a-z/-]+)", path.read_text()))
    assert named <= set(CATALOGUE)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_reasons_that_the_text_announces_are_shown(path):
    """Between a text that speaks of reasons and the next text some output has one."""
    cells = nbformat.read(path, as_version=4).cells
    announced = False
    for cell in cells:
        if cell.cell_type == "markdown":
            announced = bool(re.search(r"reasons|says why", cell.source))
        elif announced and cell.source.rstrip().endswith("reasons"):
            (output,) = cell.outputs
            assert output.data["text/plain"] not in ("()", "[]", "{}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_was_run(path, tmp_path):
    saved = nbformat.read(path, as_version=4)
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    assert not re.search(r"(?:/home|/root|/tmp|/work)/", path.read_text())
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    # The same numbers wherever a number is all that is shown.
    for old, new in zip(code, [c for c in fresh.cells if c.cell_type == "code"], strict=True):
        if "# the same every time" in old.source:
            assert [
                one.get("data", {}).get("text/plain", one.get("text")) for one in new.outputs
            ] == [one.get("data", {}).get("text/plain", one.get("text")) for one in old.outputs]
