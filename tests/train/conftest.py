from functools import cache

import pytest

from .problems import ROWS, SIDES, made


@pytest.fixture(scope="session")
def fitted():
    """Each estimator at its defaults, trained once on a common problem; not to be changed."""
    return cache(lambda estimator: made(estimator).fit(ROWS, SIDES))
