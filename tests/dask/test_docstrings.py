"""Public names of `lastiterate.dask` have the sections of numpydoc, and examples."""

import pytest

import lastiterate.dask as package
from tests.estimator_docstrings import lacks


@pytest.mark.parametrize("name", package.__all__)
def test_has_all_sections(name):
    assert not lacks(getattr(package, name))
