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
