"""What is collected: tests of extras where these are installed, and pages with their marks."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# As many processes as processors run tests, so that more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where nothing is to be written beside the sources, tests and what they start are compiled all the
# same, once.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    compiled = Path(__file__).with_name(".pytest_cache") / "compiled"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(compiled))

# Every package of an extra, and what cannot be tested without it. `pytest --extras` tests these
# alone: they have an environment of their own, see the Makefile.
EXTRAS = {
    "distributed": ["src/lastiterate/dask", "tests/dask", "docs/dask.md"],
    "torch": ["src/lastiterate/torch", "tests/torch"],
    "opacus": ["src/lastiterate/opacus", "tests/opacus"],
    "onnxruntime": ["src/lastiterate/onnx.py", "tests/test_onnx.py"],
    "safetensors": [
        "src/lastiterate/huggingface.py",
        "tests/saved_model/test_weight_files.py",
        "tests/test_huggingface.py",
    ],
    "nbclient": ["tests/notebooks"],
    "polars": ["tests/tables/test_cells_of_frames.py"],
    "numba": ["src/lastiterate/train/compiled", "tests/train/compiled"],
}
# These are tested with every extra and without.
EITHER_WAY = [
    "tests/linear_model/test_inputs.py",
    "tests/linear_model/test_private_schema.py",
    "tests/test_docstrings.py",
    "tests/test_missing_packages.py",
    "tests/train/test_discreet.py",
    "tests/train/test_envelope.py",
    "tests/train/test_noise.py",
    "tests/train/test_product_probe.py",
    "tests/train/test_step_error.py",
]


def pytest_addoption(parser):
    parser.addoption("--extras", action="store_true", help="test what needs an extra, alone")


def pytest_configure(config):
    if config.option.extras:
        paths = [path for some in EXTRAS.values() for path in some] + EITHER_WAY
        config.args[:] = [str(ROOT / path) for path in paths]


def needed_by(path):
    """The packages that are not installed and without which `path` cannot be tested."""
    return [
        package
        for package, paths in EXTRAS.items()
        if any(path.is_relative_to(ROOT / one) for one in paths) and find_spec(package) is None
    ]


def pytest_ignore_collect(collection_path):
    return True if needed_by(collection_path) else None


def pytest_collection_modifyitems(items):
    """Mark a page slow if it says so; skip a page of an extra, as pages are never ignored."""
    for item in items:
        if item.path.suffix == ".md":
            if re.search("^<!-- pytest: slow -->$", item.path.read_text(), re.MULTILINE):
                item.add_marker(pytest.mark.slow)
            for package in needed_by(item.path):
                item.add_marker(pytest.mark.skip(f"needs {package}"))
