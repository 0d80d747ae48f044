"""Parts of numpy that scipy names and hardly anyone uses, loaded when somebody does."""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec

import numpy as np

_PARTS = ("f2py", "ma", "polynomial", "testing")


def load_later() -> None:
    """They take as long as all else that a command needs; for a process that is ours."""
    for part in _PARTS:
        name = f"numpy.{part}"
        spec = None if name in sys.modules else find_spec(name)
        if spec is None or spec.loader is None:
            continue
        spec.loader = LazyLoader(spec.loader)
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        setattr(np, part, module)
