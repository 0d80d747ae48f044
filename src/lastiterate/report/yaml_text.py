"""Plain data as YAML.

Every text is written with double quotes, as JSON writes it, which YAML reads as the same text; so
no word, date or number in a text is ever taken for something else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lastiterate.errors import InvalidType


class Blank(str):
    """A text that stands for one that is not known; its line says so."""

    __slots__ = ()


def yaml_text(record: Mapping[str, Any]) -> str:
    """The YAML of nested mappings and lists of texts, numbers and truth values."""
    return "".join(f"{line}\n" for line in _lines(record, 0))


def _lines(record: Mapping[str, Any], depth: int) -> Iterator[str]:
    margin = "  " * depth
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            yield f"{margin}{_key(key)}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, Sequence) and not isinstance(value, str) and value:
            yield f"{margin}{_key(key)}:"
            for item in value:
                yield from _item(item, depth + 1)
        else:
            yield f"{margin}{_key(key)}: {_scalar(value)}"


def _item(item: Any, depth: int) -> Iterator[str]:
    margin = "  " * depth
    if isinstance(item, Mapping) and item:
        first, *rest = _lines(item, depth + 1)
        yield f"{margin}- {first.lstrip()}"
        yield from rest
    else:
        yield f"{margin}- {_scalar(item)}"


def _key(key: str) -> str:
    plain = key.replace("_", "a")
    words = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
    plain_word = plain.isascii() and plain.isalnum() and not plain[0].isdigit()
    return key if plain_word and key.lower() not in words else json.dumps(key)


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str):
        # YAML does not know the pairs that JSON writes for characters beyond 16 bits.
        text = json.dumps(value, ensure_ascii=False)
        quoted = "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
        return f"{quoted}  # fill in" if isinstance(value, Blank) else quoted
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        text = repr(value)
        # A number with an exponent and no point is a text to YAML 1.1.
        mantissa, e, exponent = text.partition("e")
        return f"{mantissa}.0e{exponent}" if e and "." not in mantissa else text
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value)
    raise InvalidType("value", value, must_be="text, a finite number, a truth value or a list")
