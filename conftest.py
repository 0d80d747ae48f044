"""Which examples can be run is a matter of what is installed; tests have a list of their own."""

import os
from importlib.util import find_spec

# As many processes as processors run tests, so that more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Those of the extras have an environment of their own: see the Makefile.
_NEEDS = {
    "torch": "src/lastiterate/torch",
    "opacus": "src/lastiterate/opacus",
}
collect_ignore = [path for package, path in _NEEDS.items() if find_spec(package) is None]
