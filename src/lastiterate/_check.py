"""Checks of arguments: one place builds the message, nan and bool never pass."""

import math
import operator
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType

_MAX_EXACT_INTEGER = 2**53
_LARGEST_TARGET = 100.0
_Record = TypeVar("_Record", bound=type)


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    infinite: bool = False,
    why: str = "",
) -> float:
    """`value` as a float inside the stated interval; an error also states `why`."""
    must_be = _interval("a number", above, at_least, below, at_most, infinite) + why
    if isinstance(value, (bool, np.bool_, str, bytes)) or not hasattr(value, "__float__"):
        raise InvalidType(name, value, must_be=must_be)
    if isinstance(value, np.ndarray) and value.ndim > 0:
        raise InvalidType(name, value, must_be=must_be)
    try:
        result = float(value)
    except OverflowError:
        raise InvalidParameter(name, value, must_be=must_be) from None
    except (TypeError, ValueError):
        raise InvalidType(name, value, must_be=must_be) from None
    inside = (
        (above is None or result > above)
        and (at_least is None or result >= at_least)
        and (below is None or result < below)
        and (at_most is None or result <= at_most)
        and (infinite or math.isfinite(result))
        and not math.isnan(result)
    )
    if not inside:
        raise InvalidParameter(name, value, must_be=must_be)
    return result


def target_epsilon(name: str, value: object, *, or_zero: bool = False) -> float:
    """`value` as an epsilon that is worth aiming at."""
    why = (
        f" (an epsilon above {_LARGEST_TARGET:g} promises nothing: one example may make outcomes "
        f"e^{_LARGEST_TARGET:g} times as likely; values from 0.1 to 10 are usual)"
    )
    above, at_least = (None, 0.0) if or_zero else (0.0, None)
    return number(name, value, above=above, at_least=at_least, at_most=_LARGEST_TARGET, why=why)


def count(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """`value` as an int inside the stated interval."""
    top = _MAX_EXACT_INTEGER if at_most is None else at_most
    must_be = f"a whole number in [{at_least}, {top if at_most is not None else '2**53'}]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise InvalidType(name, value, must_be=must_be)
    result = operator.index(value)
    if not at_least <= result <= top:
        raise InvalidParameter(name, value, must_be=must_be)
    return result


def numbers(
    name: str, values: object, *, length: int | None = None, at_least: float = 0.0
) -> Array:
    """`values` as a one-dimensional array of finite floats >= `at_least`."""
    size = "" if length is None else f" of length {length}"
    must_be = f"a number or a sequence{size} of finite numbers >= {at_least:g}"
    if isinstance(values, (str, bytes)) or not isinstance(values, (Iterable, np.ndarray)):
        raise InvalidType(name, values, must_be=must_be)
    try:
        listed = values if isinstance(values, np.ndarray) else np.array(list(values))
        if listed.dtype.kind not in "iuf" and listed.size:
            raise TypeError
        array = np.asarray(listed, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(name, values, must_be=must_be) from None
    if array.ndim != 1 or array.size == 0 or (length is not None and array.size != length):
        found = f"{must_be}, not of shape {array.shape}"
        raise InvalidParameter(name, values, must_be=found)
    if not (array.min() >= at_least and array.max() < math.inf):  # nan fails both
        where = int(np.argmin((array >= at_least) & (array < math.inf)))
        raise InvalidParameter(f"{name}[{where}]", float(array[where]), must_be=must_be)
    return array


def choice(
    name: str,
    value: object,
    *,
    among: tuple[str, ...],
    hints: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """`value`, one of a few words; `hints` are for words of other libraries."""
    must_be = "one of " + ", ".join(map(repr, among))
    if not isinstance(value, str):
        raise InvalidType(name, value, must_be=must_be)
    if value not in among:
        hint = f" ({hints[value]})" if value in hints else similar(value, among)
        raise InvalidParameter(name, value, must_be=must_be + hint)
    return value


def spelled_keywords(record: _Record) -> _Record:
    """A class of keywords alone, which answers unknown ones with those most like them."""
    init = record.__init__  # type: ignore[misc]  # of this very class
    known = [name for name in signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        for name in named.keys() - set(known):
            question = similar(name, known)
            must_be = f"left out: {record.__name__} takes no such argument{question}"
            raise InvalidType(name, named[name], must_be=must_be)
        init(self, *given, **named)

    record.__init__ = checked  # type: ignore[misc]
    return record


def similar(value: str, among: Iterable[str]) -> str:
    """A question that names the words most like this one; empty if there is none."""
    found = get_close_matches(value, list(among), n=2)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""


def known_names(known: Iterable[str], given: Iterable[str], what: str) -> None:
    """Raise `InvalidType` if a keyword is not among those that `what` takes."""
    for name in given:
        if name not in known:
            must_be = f"left out: {what} takes no such argument{similar(name, known)}"
            raise InvalidType(name, must_be=must_be, found="one")


def _interval(
    kind: str,
    above: float | None,
    at_least: float | None,
    below: float | None,
    at_most: float | None,
    infinite: bool,
) -> str:
    left = f"({above:g}" if above is not None else f"[{at_least:g}" if at_least is not None else "("
    right = f"{below:g})" if below is not None else f"{at_most:g}]" if at_most is not None else ")"
    low = "-inf" if left == "(" else ""
    high = ("inf]" if infinite else "inf)") if right == ")" else ""
    return f"{kind} in {left}{low}, {high or right}"
