"""An optional module whose packages are not all there names the one that is missing."""

import pickle
import subprocess
import sys

import pytest

from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra

MISSING = [
    ("dask", "dask", "dask"),
    ("dask", "distributed", "distributed"),
    ("dask", "pandas", "pandas"),
    ("dask", "pyarrow", "pyarrow"),
    ("dask", "sklearn", "scikit-learn"),
    ("torch", "torch", "torch"),
    ("torch", "safetensors", "safetensors"),
    ("huggingface", "safetensors", "safetensors"),
]


@pytest.mark.parametrize("module, hidden, named", MISSING)
def test_is_named(module, hidden, named):
    """Where the others are installed."""
    if module == "dask":
        pytest.importorskip("dask.dataframe")
        pytest.importorskip("distributed")
    else:
        pytest.importorskip("safetensors")
        pytest.importorskip("torch")
    code = f"import sys; sys.modules[{hidden!r}] = None; import lastiterate.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = ran.stderr.strip().splitlines()[-1]
    assert said.startswith(
        f"lastiterate.errors.MissingExtra: lastiterate.{module} needs {named}: "
        f"pip install 'lastiterate[{module}]'"
    )


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


class TestWithoutDpAccounting:
    """On Pythons for which what it asks for cannot be built."""

    HIDDEN = """
import sys
sys.modules["dp_accounting"] = None
import lastiterate as li
from lastiterate.errors import MissingExtra

def run(batches):
    return li.TrainingRun.from_dp_sgd(
        batches=batches, steps=40, clip_norm=1.0, noise_multiplier=1.0, step_size=0.5,
        adjacency="zero-out", loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0))

"""

    def ran(self, code):
        return subprocess.run(
            [sys.executable, "-c", self.HIDDEN + code], capture_output=True, text=True, check=True
        ).stdout

    @pytest.mark.parametrize("rule", ["FullBatch(400)", "Cyclic(400, 20)", "ShuffledOnce(400, 20)"])
    def test_batches_that_are_not_sampled_are_accounted(self, rule):
        told = float(self.ran(f"print(li.account(run(li.{rule})).epsilon(1e-5))"))
        assert 0.0 < told < 200.0

    def test_what_needs_it_says_how_to_install_it(self):
        code = """
try:
    li.account(run(li.SampledWithoutReplacement(400, 20))).epsilon(1e-5)
except MissingExtra as error:
    print(error)
"""
        assert "needs dp-accounting: pip install --no-deps 'dp-accounting" in self.ran(code)
