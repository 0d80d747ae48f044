import re
from importlib.util import find_spec
from pathlib import Path

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

# Those of the extras have an environment of their own: see the Makefile.
_NEEDS = {
    "distributed": "dask",
    "torch": "torch",
    "opacus": "opacus",
    "nbclient": "notebooks",
    "numba": "train/compiled",
}
collect_ignore = [
    # Importing it registers a batch rule, which other tests must not meet; one loads it on purpose.
    "forwards_and_backwards.py",
    *(folder for package, folder in _NEEDS.items() if find_spec(package) is None),
]

_LONGER = [
    line
    for line in Path(__file__).with_name("longer_cases.txt").read_text().splitlines()
    if not line.startswith("#")
]


def pytest_collection_modifyitems(config, items):
    """Mark what is listed; a line that names nothing any more is an error."""
    left = {line: re.compile(re.escape(line).replace(r"\*", ".*")) for line in _LONGER}
    patterns = list(left.values())
    for item in items:
        if any(pattern.fullmatch(item.nodeid) for pattern in patterns):
            item.add_marker(pytest.mark.slow)
            left = {line: one for line, one in left.items() if not one.fullmatch(item.nodeid)}
    if not any("::" in word for word in config.args):
        files = {item.nodeid.partition("::")[0] for item in items}
        stale = [line for line in left if line.partition("::")[0] in files]
        if stale:
            raise pytest.UsageError(f"longer_cases.txt: no test is called {stale[0]}")


@pytest.fixture(scope="session")
def fitted():
    """Each estimator at its defaults, trained once on a common problem; not to be changed."""
    from functools import cache

    from tests.train.problems import ROWS, SIDES, made

    return cache(lambda estimator: made(estimator).fit(ROWS, SIDES))
