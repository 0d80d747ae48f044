"""Which tests can be run is a matter of what is installed."""

from importlib.util import find_spec

# Those of the extras have an environment of their own: see the Makefile.
_NEEDS = {
    "torch": ["src/lastiterate/torch", "tests/torch"],
    "opacus": ["src/lastiterate/opacus", "tests/opacus"],
    "nbclient": ["tests/notebooks"],
}
collect_ignore = [
    path for package, paths in _NEEDS.items() if find_spec(package) is None for path in paths
]
