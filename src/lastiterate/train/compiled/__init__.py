"""Loops of the training that Numba compiles, where it is installed (`lastiterate[fast]`).

Compiling takes some ten seconds, once: what comes of it is kept, beside these files or where Numba
keeps such things.  Where there is little to compute not even Numba is loaded.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

_WORTH_LOADING = 1_024  # numbers at a time


def compiled(name: str, size: int) -> ModuleType | None:
    """The compiled module of this name, if this many numbers are worth it and Numba is there."""
    return _load(name) if size >= _WORTH_LOADING else None


@cache
def _load(name: str) -> ModuleType | None:
    try:
        return import_module(f"{__name__}.{name}")
    except (ImportError, RuntimeError) as error:  # the latter where nothing may be kept
        if str(getattr(error, "name", "")).startswith(__name__):
            raise  # a name that none of these files has
        return None
