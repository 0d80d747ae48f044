"""Public names of `lastiterate.linear_model` have the sections of numpydoc, and examples."""

import pytest

import lastiterate.linear_model as package
from tests.estimator_docstrings import lacks


@pytest.mark.parametrize("name", package.__all__)
def test_has_all_sections(name):
    assert not lacks(getattr(package, name))


def test_what_is_missing_is_found():
    class Doubling:
        """Doubles."""

        def fit(self, number: float) -> float:
            """Twice the number."""
            return 2.0 * number

    Doubling.__module__ = "lastiterate.nowhere"
    assert lacks(Doubling) == [
        "an example",
        "Attributes",
        "fit: Parameters",
        "fit: Returns",
        "fit: an example",
    ]
