"""Small tables for notebooks: no scripts, nothing fetched, in whatever colours are around.

And the start of whole pages, by which ours are recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from lastiterate._files import is_sealed

PAGE_START = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="lastiterate">
"""
_TABLE = "border-collapse:collapse;color:inherit;background:transparent;margin:.3em 0"
_CELL = (
    "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;color:inherit;"
    "background:transparent;border:0;border-bottom:1px solid rgba(128,128,128,.35)"
)


def is_page(content: bytes) -> bool:
    """Whether a file is a whole page of ours, as it was written."""
    return content.startswith(PAGE_START.encode()) and is_sealed(content)


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
