"""Values that anyone can read: for others typer loads pydantic, which takes a tenth of a second.

Whatever is not plainly what its flag takes is left to typer, and so is what is said about it.
"""

import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?|[+-]?\.\d{1,15}", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,15}", re.ASCII)
_READ: dict[Any, Callable[[str], Any]] = {
    float: lambda text: float(text) if _NUMBER.fullmatch(text) else None,
    int: lambda text: int(text) if _WHOLE.fullmatch(text) else None,
    str: str,
}


class _ReadsPlainValues:
    """Flags are wrapped where a command hands them out, those for help among them."""

    def get_params(self, context: Any) -> Any:
        flags = super().get_params(context)  # type: ignore[misc]  # of whom this is mixed into
        for flag in flags:
            vars(flag).setdefault("process_value", _unless_plain(flag, flag.process_value))
        return flags


class PlainCommand(_ReadsPlainValues, TyperCommand):
    """A command that reads plain values itself."""


class PlainGroup(_ReadsPlainValues, TyperGroup):
    """A group of commands that reads the plain values of its own flags itself."""


def _unless_plain(flag: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    takes = getattr(flag, "type_descriptor", None)
    if takes is None or flag.required or flag.multiple or flag.nargs != 1:
        return otherwise
    kind, parser = takes.annotation, takes.parameter_info.parser
    if takes.is_choice or takes.is_ranged:
        return otherwise
    reads = parser or _READ.get(kind, _unread)

    def read(context: Any, value: Any) -> Any:
        if isinstance(value, str):
            found = reads(value)
            is_plain = found is not None
        else:
            found = value
            is_plain = value is None or (parser is None and type(value) is kind)
        if not is_plain:
            return otherwise(context, value)
        return found if flag.callback is None else flag.callback(context, flag, found)

    return read


def _unread(text: str) -> None:
    """Left to typer."""
