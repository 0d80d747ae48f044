"""Types of flag values: whole numbers as people write them, and words that shells complete."""

import re
from collections.abc import Callable, Iterable

import typer

_GROUPED = re.compile(r"[+]?\d{1,3}(?:,\d{3})+")
_FINITE = re.compile(r"[+]?[\d_]*\.?[\d_]*(?:[eE][+]?\d{1,3})?")


def whole_number(text: str) -> int:
    """The whole number that a text such as 50000, 50_000, 50,000 or 5e4 stands for.

    >>> [whole_number(text) for text in ("50000", "50_000", "50,000", "5e4")]
    [50000, 50000, 50000, 50000]
    """
    plain = text.strip().replace(",", "") if _GROUPED.fullmatch(text.strip()) else text.strip()
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        number = float(plain) if _FINITE.fullmatch(plain) else None
    except ValueError:
        number = None
    if number is None or not number.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 50000, 50,000 or 5e4")
    return int(number)


def among(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Offers those of the words that go on as what was typed does."""
    offered = tuple(words)

    def going_on(typed: str) -> list[str]:
        return [word for word in offered if word.startswith(typed)]

    return going_on


def flag(name: str) -> str:
    """The flag of a parameter as it is typed."""
    return f"--{name.replace('_', '-')}"
