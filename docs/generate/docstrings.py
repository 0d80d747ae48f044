"""Docstrings that are put together when a module is loaded, which reading the source misses."""

import inspect
from importlib import import_module
from typing import Any

from griffe import Class, Docstring, Extension


class Assembled(Extension):
    """Takes the docstring of a class without a literal one from the class itself."""

    def on_class(self, *, cls: Class, **_: Any) -> None:
        if cls.docstring is None and "__doc__" in cls.members:
            found = getattr(import_module(cls.module.path), cls.name)
            cls.docstring = Docstring(inspect.getdoc(found) or "", parent=cls)
