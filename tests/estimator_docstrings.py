"""The sections that docstrings of a package's public classes and functions lack.

A method that overrides one of another library has that library's documentation.  The example of
another method may stand in its class.
"""

import inspect
from dataclasses import is_dataclass
from types import FunctionType


def own_methods(kind):
    """(name, function) of every public method that only classes of this library define."""
    for name in dir(kind):
        owners = [base for base in kind.__mro__ if name in vars(base)]
        ours = all(base.__module__.startswith("lastiterate.") for base in owners)
        if name.startswith("_") or not owners or not ours:
            continue
        member = vars(owners[0])[name]
        member = inspect.unwrap(getattr(member, "__func__", getattr(member, "fn", member)))
        if isinstance(member, FunctionType):
            yield name, owners


def docstrings(name, owners):
    members = (vars(base)[name] for base in owners)
    plain = (getattr(one, "__func__", getattr(one, "fn", one)) for one in members)
    return "\n".join(inspect.getdoc(inspect.unwrap(one)) or "" for one in plain)


def takes(function):
    """The names of its parameters."""
    listed = inspect.signature(function).parameters
    return [name for name in listed if name not in ("self", "cls") and not name.startswith("_")]


def lacking(text, names, *, returns):
    """What the text of a docstring lacks."""
    sections = (["Parameters"] if names else []) + (["Returns"] if returns else [])
    for section in sections:
        if f"{section}\n{'-' * len(section)}\n" not in text:
            yield section
    yield from (name for name in names if name not in text)


def _returns(function):
    return inspect.signature(function).return_annotation not in (None, "None")


def lacks_of_class(kind):
    text = inspect.getdoc(kind) or ""
    if issubclass(kind, BaseException):
        return [] if text else ["a docstring"]
    made = is_dataclass(kind) or "__init__" in vars(kind)
    found = list(lacking(text, takes(kind) if made else [], returns=False))
    if ">>>" not in text:
        found.append("an example")
    if hasattr(kind, "fit") and "Attributes\n----------\n" not in text:
        found.append("Attributes")
    for name, owners in own_methods(kind):
        own = docstrings(name, owners)
        method = inspect.unwrap(getattr(kind, name))
        names = takes(method)
        found += [
            f"{name}: {one}"
            for one in lacking(own, names, returns=bool(names) and _returns(method))
        ]
        if names and ">>>" not in own and f".{name}(" not in text:
            found.append(f"{name}: an example")
    return found


def lacks(value):
    """What the docstring of a public class or function, or of a public method of it, lacks."""
    if isinstance(value, type):
        return lacks_of_class(value)
    text = inspect.getdoc(value) or ""
    found = list(lacking(text, takes(value), returns=_returns(value)))
    return found if ">>>" in text else [*found, "an example"]
