"""Numbers as printed, rounded towards less privacy; escaped text; cards for notebooks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from html import escape

_FOUR_DECIMALS = Decimal("0.0001")
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e6
_EQUAL_WITHIN = 1e-9
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:.3em 0"
_CELL = (
    "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;color:inherit;"
    "background:transparent;border:0;border-bottom:1px solid rgba(128,128,128,.35)"
)
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|!&~$]")


def up(value: float) -> str:
    """`value` rounded up to four decimals, or to four digits if it is small or large.

    >>> up(3.48259), up(3e-7), up(float("inf"))
    ('3.4826', '3e-7', 'inf')
    """
    return _rounded(value, ROUND_CEILING)


def mu(value: float) -> str:
    """A mu of Gaussian differential privacy, rounded up; a dash where none describes a guarantee.

    >>> mu(0.5), mu(float("inf"))
    ('0.5000', '-')
    """
    return "-" if value == math.inf else up(value)


def down(value: float) -> str:
    """`value` rounded down to four decimals, or to four digits if it is small."""
    return _rounded(value, ROUND_FLOOR)


def times(ratio: float) -> str:
    """A ratio, rounded up; 1 where only rounding sets it apart from that.

    >>> times(1.0 + 1e-12), times(1.001)
    ('1.00', '1.01')
    """
    if is_one(ratio):
        return "1.00"
    if not ratio < _PLAIN_TO:
        return up(ratio)
    return str(Decimal(ratio).quantize(Decimal("0.01"), ROUND_CEILING))


def is_one(ratio: float) -> bool:
    """Whether the two that it compares are equal, up to rounding."""
    return abs(ratio - 1.0) <= _EQUAL_WITHIN


def short(value: float) -> str:
    """A number of the run's own, as it was probably typed."""
    return f"{value:.6g}"


def _rounded(value: float, direction: str) -> str:
    if not math.isfinite(value):
        return str(value)
    exact = Decimal(value)
    if value == 0.0 or _PLAIN_FROM <= value < _PLAIN_TO:
        return str(exact.quantize(_FOUR_DECIMALS, direction))
    return f"{Context(prec=4, rounding=direction).create_decimal(exact).normalize():.4g}"


def printable(text: str) -> str:
    """The text with escapes for line ends and all else that a terminal might obey or hide."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def as_markdown(text: str) -> str:
    """The text as Markdown that shows it, and nothing else."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", printable(text))


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def card(
    title: str, rows: Iterable[tuple[str, object]], *, lead: str = "", notes: Iterable[str] = ()
) -> str:
    """A title, a sentence, a table of two columns, and a list."""
    cells = "".join(
        f'<tr><th style="{_CELL};font-weight:600;white-space:nowrap">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<div style="color:inherit"><div><strong>{escape(title)}</strong></div>'
        + (f"<div>{escape(lead)}</div>" if lead else "")
        + f'<table style="{_TABLE}"><tbody>{cells}</tbody></table>'
        + (f"<ul>{listed}</ul>" if listed else "")
        + "</div>"
    )
