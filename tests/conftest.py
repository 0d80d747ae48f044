import pytest
from hypothesis import HealthCheck, settings

# Deadlines time the machine, not the code; examples are derandomised so that a failure on
# one machine is a failure on all.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

# Importing it registers a batch rule, which other tests must not meet; one loads it on purpose.
collect_ignore = ["forwards_and_backwards.py"]


@pytest.fixture(scope="session")
def fitted():
    """Each estimator at its defaults, trained once on a common problem; not to be changed."""
    from functools import cache

    from tests.train.problems import ROWS, SIDES, made

    return cache(lambda estimator: made(estimator).fit(ROWS, SIDES))
