"""Which examples can be run is a matter of what is installed; tests have a list of their own."""

from importlib.util import find_spec

# Those of the extras have an environment of their own: see the Makefile.
_NEEDS = {
    "torch": "src/lastiterate/torch",
    "opacus": "src/lastiterate/opacus",
    "numba": "src/lastiterate/train/compiled",
}
collect_ignore = [path for package, path in _NEEDS.items() if find_spec(package) is None]
