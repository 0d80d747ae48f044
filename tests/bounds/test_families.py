"""Inside a family of bounds only the files of its records know runs."""

from pathlib import Path

import pytest

from lastiterate import bounds
from lastiterate.bounds.catalogue import RECORDS

FOLDER = Path(bounds.__file__).parent
# It replaces a run on batches of random size by one on batches of a fixed size.
REDUCTIONS = {"random_batch_sizes.py"}


@pytest.mark.parametrize("family", ["composition", "shuffling", "subsampling"])
def test_laws_and_divergences_do_not_know_runs(family):
    knowing = {
        file.name
        for file in (FOLDER / family).rglob("*.py")
        if "lastiterate.run" in file.read_text() or "import quantities" in file.read_text()
    }
    records = {
        Path(*bound.evaluate.__module__.split(".")[2:]).with_suffix(".py").name
        for bound in RECORDS.values()
        if bound.evaluate.__module__.startswith(f"lastiterate.bounds.{family}.")
    }
    assert len(records) > 1
    assert knowing - REDUCTIONS == records
