"""The documentation of the public surface: sections that numpydoc asks for, and examples that run.

`ROOTS` names where the surface begins.  From there it is walked: public methods of classes, and the
library's own classes that functions and methods return.
"""

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from types import FunctionType, UnionType

import pytest

import lastiterate

from . import estimator_docstrings

ROOTS = [getattr(lastiterate, name) for name in lastiterate.__all__]
_CHECKS = ("_check", "schedule", "_instance")


def of_the_library(value):
    return getattr(value, "__module__", "").split(".")[0] == "lastiterate"


def is_documented(value):
    """Whether this has a docstring of its own to hold to the rules: no exception, no constant."""
    error = isinstance(value, type) and issubclass(value, BaseException)
    return of_the_library(value) and callable(value) and not error


def returned(function):
    """The classes of the library that a function says it returns."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except NameError:  # a name that only type checkers import
        return
    waiting = [hint]
    while waiting:
        kind = waiting.pop()
        waiting += typing.get_args(kind)
        if isinstance(kind, type) and not isinstance(kind, UnionType) and is_documented(kind):
            yield kind


def members(kind):
    """(name, function or property) of every public member that the library defines."""
    for name in dir(kind):
        if name.startswith("_"):
            continue
        for base in kind.__mro__:
            if name in vars(base):
                member = inspect.unwrap(getattr(vars(base)[name], "__func__", vars(base)[name]))
                if of_the_library(base) and isinstance(member, FunctionType | property):
                    yield name, member
                break


def walk(roots) -> Iterator[tuple[str, object, type | None]]:
    """(name, function or class, class that it is a method of) of all that can be reached."""
    waiting, known = [root for root in roots if is_documented(root)], set()
    while waiting:
        value = waiting.pop()
        if value in known or value.__name__.startswith("_"):
            continue
        known.add(value)
        yield value.__qualname__, value, None
        if isinstance(value, type):
            for name, member in members(value):
                if isinstance(member, FunctionType):
                    yield f"{value.__name__}.{name}", member, value
                    waiting += returned(member)
        else:
            waiting += returned(value)


SURFACE = {name: (value, owner) for name, value, owner in walk(ROOTS)}


def texts(name, value, owner):
    """The docstrings that may have the sections: its own, or those of methods that it overrides."""
    if owner is None:
        return [inspect.getdoc(value) or ""]
    overridden = (vars(base).get(name.split(".")[1]) for base in owner.__mro__)
    found = (inspect.unwrap(getattr(one, "__func__", one)) for one in overridden if one is not None)
    return [inspect.getdoc(one) or "" for one in found]


def parameters(value):
    """The names of what it is called with."""
    if isinstance(value, type) and not is_dataclass(value):
        maker = next(base for base in value.__mro__ if "__init__" in vars(base))
        if not of_the_library(maker):
            return []
    listed = inspect.signature(value).parameters
    return [name for name in listed if name not in ("self", "cls") and not name.startswith("_")]


def raises(value):
    """Whether its own lines raise an error or hand an argument to a check."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            named = ast.unparse(node.func)
            if named.split(".")[0] in _CHECKS:
                return True
    return False


def missing(name, value, owner):
    """The sections that numpydoc asks for, and the parameters, that no docstring has."""
    wanted, known = [], "\n".join(texts(name, value, owner))
    if parameters(value):
        wanted.append("Parameters")
    if isinstance(value, FunctionType):
        if inspect.signature(value).return_annotation not in (None, "None"):
            wanted.append("Returns")
        if raises(value):
            wanted.append("Raises")
    wanted.append("Examples")
    lacked = [section for section in wanted if f"{section}\n{'-' * len(section)}" not in known]
    lacked += [] if "Examples" in lacked or ">>>" in known else ["an example"]
    return lacked + [each for each in parameters(value) if each not in known]


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_has_all_sections(name):
    assert not missing(name, *SURFACE[name])


def test_estimators_have_all_sections():
    """As in scikit-learn, the example of a class is one for all of its methods."""
    module = pytest.importorskip("lastiterate.linear_model")
    roots = [getattr(module, name) for name in module.__all__]
    found = {name: missing(name, *each) for name, *each in walk(roots) if name not in SURFACE}
    lacked = {
        name: [each for each in lacks if each != "Examples" or "." not in name]
        for name, lacks in found.items()
    }
    assert len(found) > 20
    assert not {name: lacks for name, lacks in lacked.items() if lacks}


# Each with what it cannot be imported without.
PACKAGES = {
    "linear_model": "sklearn",
    "features": "sklearn",
    "torch": "torch",
    "opacus": "opacus",
    "dask": "distributed",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_of_packages_have_sections(package):
    pytest.importorskip(PACKAGES[package])
    module = import_module(f"lastiterate.{package}")
    found = {name: estimator_docstrings.lacks(getattr(module, name)) for name in module.__all__}
    assert not {name: lacks for name, lacks in found.items() if lacks}


class TestTheWalk:
    """It finds what it is to find, and misses nothing that is missing."""

    def test_reaches_methods_and_what_they_return(self):
        assert {"account", "PrivacyReport.epsilon", "TrainingRun", "Loss", "Shifts"} <= set(SURFACE)

    def test_finds_a_missing_section(self):
        def halved(number: float, other: int) -> float:
            """Half the number.

            Parameters
            ----------
            number : float
            """
            if number < 0:
                raise ValueError(number)
            return number / 2

        assert missing("halved", halved, None) == ["Returns", "Raises", "Examples", "other"]

    def test_finds_what_an_estimator_lacks(self):
        class Doubling:
            """Doubles."""

            def fit(self, number: float) -> float:
                """Twice the number."""
                return 2.0 * number

        Doubling.__module__ = "lastiterate.nowhere"
        assert estimator_docstrings.lacks(Doubling) == [
            "an example",
            "Attributes",
            "fit: Parameters",
            "fit: Returns",
            "fit: an example",
        ]
