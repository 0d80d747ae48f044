"""Which examples can be run is a matter of what is installed; tests have a list of their own."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

# As many processes as processors run tests, so that more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where nothing is to be written beside the sources, tests and what they start are compiled all the
# same, once.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    compiled = Path(__file__).with_name(".pytest_cache") / "compiled"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(compiled))

# Those of the extras have an environment of their own: see the Makefile.
_NEEDS = {
    "distributed": "src/lastiterate/dask",
    "torch": "src/lastiterate/torch",
    "opacus": "src/lastiterate/opacus",
    "numba": "src/lastiterate/train/compiled",
}
_PAGES = {"distributed": "docs/dask.md"}
collect_ignore = [path for package, path in _NEEDS.items() if find_spec(package) is None]


def pytest_collection_modifyitems(items):
    """Pages are named one by one, so that they cannot be ignored."""
    for package, page in _PAGES.items():
        for item in items:
            if item.path == Path(__file__).with_name("docs") / Path(page).name and (
                find_spec(package) is None
            ):
                item.add_marker(pytest.mark.skip(f"needs {package}"))
