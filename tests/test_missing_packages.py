"""An optional module whose packages are not all there names the one that is missing."""

import pickle
import subprocess
import sys
from importlib.util import find_spec

import pytest

from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra

# An optional module, what hides a package of it from a process, and the name that is installed.
MISSING = {
    ("dask", "dask"): "dask",
    ("dask", "distributed"): "distributed",
    ("dask", "pandas"): "pandas",
    ("dask", "pyarrow"): "pyarrow",
    ("dask", "sklearn"): "scikit-learn",
    ("torch", "torch"): "torch",
    ("torch", "safetensors"): "safetensors",
    ("huggingface", "safetensors"): "safetensors",
}


def ran(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module, hidden", MISSING)
def test_is_named(module, hidden):
    """Where the others are installed, as in the environment of the extras."""
    for needed in ("distributed", "safetensors", "torch"):
        if find_spec(needed) is None:
            pytest.skip(f"needs {needed}")
    said = ran(f"import sys; sys.modules[{hidden!r}] = None; import lastiterate.{module}").stderr
    named = MISSING[module, hidden]
    told = f"lastiterate.{module} needs {named}: pip install 'lastiterate[{module}]'"
    assert said.strip().splitlines()[-1].startswith(f"lastiterate.errors.MissingExtra: {told}")


class TestTheRoot:
    def raised(self, code):
        with pytest.raises(ImportError) as caught:
            exec(code, {})
        return str(MissingExtra.of(caught.value, "this", extra="more"))

    def test_is_named_and_not_who_speaks_of_it(self):
        code = """
try:
    import no_such_package.part
except ImportError as error:
    raise ImportError("requirements are not installed") from error
"""
        assert self.raised(code).startswith("this needs no_such_package: pip install")
        assert "no_such_package" in self.raised(code.replace(" from error", ""))

    def test_is_not_what_was_only_tried(self):
        code = """
try:
    import faster_package
except ImportError:
    import needed_package
"""
        assert self.raised(code).startswith("this needs needed_package: ")

    def test_may_be_there_and_broken(self):
        said = self.raised("from json import no_such_name")
        assert said.startswith("this needs json, which is installed but cannot be imported")

    def test_may_be_unnamed(self):
        assert self.raised("raise ImportError('no')").startswith("this needs a package")


@pytest.mark.parametrize("kind", [InvalidParameter, InvalidType])
def test_errors_cross_from_other_processes(kind):
    error = kind("x", 3, must_be="less", found=None)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.name, again.value) == (str(error), "x", 3)


def test_without_dp_accounting():
    """On Pythons for which what it asks for cannot be built, sampled batches alone need it."""
    found = ran("""
import sys
sys.modules["dp_accounting"] = None
import lastiterate as li
from lastiterate.errors import MissingExtra

def epsilon(batches):
    return li.account(li.TrainingRun.from_dp_sgd(
        batches=batches, steps=40, clip_norm=1.0, noise_multiplier=1.0, step_size=0.5,
        adjacency="zero-out", loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0),
    )).epsilon(1e-5)

for batches in (li.FullBatch(400), li.Cyclic(400, 20), li.ShuffledOnce(400, 20)):
    assert 0.0 < epsilon(batches) < 200.0
try:
    epsilon(li.SampledWithoutReplacement(400, 20))
except MissingExtra as error:
    print(error)
""")
    assert found.returncode == 0, found.stderr
    assert "needs dp-accounting: pip install --no-deps 'dp-accounting" in found.stdout
