"""A test must not depend on how long it takes: nobody waits for what is computed here."""

import math
from importlib import import_module

import pytest

# The package has a function of the same name.
progress_bar = import_module("lastiterate.cli.terminal")


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch):
    monkeypatch.setattr(progress_bar, "BEFORE_A_LINE", math.inf)
    monkeypatch.setattr(progress_bar, "BEFORE_THE_BAR", 0.0)
    monkeypatch.setattr(progress_bar, "BETWEEN_DRAWINGS", 0.0)
