"""Parameters of tests, of which some take seconds and are left to `make test-all`."""

import pytest


def slow(*values):
    """One set of parameters, marked slow."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_if(condition, cases):
    """All `cases`, of which those that satisfy `condition` are marked slow."""
    return [slow(case) if condition(case) else case for case in cases]
