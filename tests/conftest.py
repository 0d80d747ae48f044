import os

import pytest
from hypothesis import HealthCheck, settings

# Deadlines time the machine, not the code.  Examples are derandomised so that a failure on one
# machine is a failure on all; `make test-all` meets fresh ones, and prints their seed.
_COMMON = {
    "deadline": None,
    "max_examples": 100,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("default", derandomize=True, **_COMMON)
settings.register_profile("fresh", derandomize=False, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Importing it registers a batch rule, which other tests must not meet; one loads it on purpose.
collect_ignore = ["forwards_and_backwards.py"]


@pytest.fixture(scope="session")
def fitted():
    """Each estimator at its defaults, trained once on a common problem; not to be changed."""
    from functools import cache

    from tests.train.problems import ROWS, SIDES, made

    return cache(lambda estimator: made(estimator).fit(ROWS, SIDES))
