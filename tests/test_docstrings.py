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
from types import FunctionType, UnionType

import pytest

import lastiterate

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
    """The sections that numpydoc asks for and no docstring has."""
    wanted = []
    if parameters(value):
        wanted.append("Parameters")
    if isinstance(value, FunctionType):
        if inspect.signature(value).return_annotation not in (None, "None"):
            wanted.append("Returns")
        if raises(value):
            wanted.append("Raises")
    wanted.append("Examples")
    known = texts(name, value, owner)
    return [
        section
        for section in wanted
        if not any(f"{section}\n{'-' * len(section)}" in text for text in known)
    ]


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_has_all_sections(name):
    value, owner = SURFACE[name]
    assert not missing(name, value, owner)


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_names_all_parameters(name):
    value, owner = SURFACE[name]
    text = "\n".join(texts(name, value, owner))
    assert not [each for each in parameters(value) if each not in text]


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_has_an_example(name):
    value, owner = SURFACE[name]
    assert any(">>>" in text for text in texts(name, value, owner))


class TestEstimators:
    """As in scikit-learn, the example of a class is one for all of its methods."""

    def surface(self):
        module = pytest.importorskip("lastiterate.linear_model")
        roots = [getattr(module, name) for name in module.__all__]
        return {name: found for name, *found in walk(roots) if name not in SURFACE}

    def test_have_all_sections(self):
        known = {name: missing(name, *found) for name, found in self.surface().items()}
        classes = {name for name, (value, _) in self.surface().items() if isinstance(value, type)}
        assert not {name: known[name] for name in classes if known[name]}
        methods = {name: set(lacks) - {"Examples"} for name, lacks in known.items()}
        assert not {name: lacks for name, lacks in methods.items() if lacks}


class TestTheWalk:
    """It finds what it is to find, and misses nothing that is missing."""

    def test_reaches_methods_and_what_they_return(self):
        assert {"account", "PrivacyReport.epsilon", "TrainingRun", "Loss", "Shifts"} <= set(SURFACE)

    def test_finds_a_missing_section(self):
        def halved(number: float) -> float:
            """Half the number.

            Parameters
            ----------
            number : float
            """
            if number < 0:
                raise ValueError(number)
            return number / 2

        assert missing("halved", halved, None) == ["Returns", "Raises", "Examples"]
