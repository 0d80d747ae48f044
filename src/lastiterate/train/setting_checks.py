"""Checks of settings that are neither numbers nor one of a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.column_rules import WIDE, is_wide


def only_false(name: str, value: Any) -> bool:
    """False; raises for anything else."""
    if value:
        must_be = (
            "False: the guarantee is of a single run from a start that does not depend on the "
            "data; for two runs, compose their reports"
        )
        raise InvalidParameter(name, value, must_be=must_be)
    return False


def checked_range(name: str, value: Any) -> tuple[float, float]:
    """The low and the high end of a range, checked."""
    must_be = "(low, high), two finite numbers with low < high"
    try:
        low, high = (_check.number(name, end) for end in value)
    except (TypeError, ValueError):
        raise InvalidType(name, value, must_be=must_be) from None
    if not low < high:
        raise InvalidParameter(name, value, must_be=must_be)
    if not is_wide(low, high):
        raise InvalidParameter(name, value, must_be=WIDE)
    return low, high


def checked_truth(name: str, value: Any) -> bool:
    """True or False, checked."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidType(name, value, must_be="True or False")
    return bool(value)


def checked_text_columns(name: str, value: Any) -> tuple[tuple[str, int, int], ...]:
    """Names and features of columns, in order, checked."""
    must_be = "a mapping of column names to (first feature, first feature after them)"
    if value is None:
        return ()
    if isinstance(value, tuple):  # checked before
        value = {column: (first, after) for column, first, after in value}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value):
        raise InvalidType(name, must_be=must_be, found=type(value).__name__)
    found = []
    for column, features in value.items():
        if not isinstance(features, Sequence) or len(features) != 2:
            raise InvalidParameter(f"{name}[{column!r}]", features, must_be="a pair of numbers")
        first = _check.count(f"{name}[{column!r}]", features[0], at_least=0)
        after = _check.count(f"{name}[{column!r}]", features[1], at_least=first + 1)
        found.append((column, first, after))
    return tuple(found)


PRIVATE, PUBLIC = "private", "public"  # whose rows a step of preprocessing was fitted on


def checked_preprocessing(name: str, value: Any) -> dict[str, str]:
    """Names of steps, each with "private" or "public" for the rows it was fitted on, checked."""
    must_be = 'a mapping of names of steps to "private" or "public"'
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) and one for one in value):
        raise InvalidType(name, value, must_be=must_be)
    return {
        step: _check.choice(f"{name}[{step!r}]", said, among=(PRIVATE, PUBLIC))
        for step, said in value.items()
    }
