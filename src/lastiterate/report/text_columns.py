"""Paragraphs and columns of plain text in lines of a given width."""

from collections.abc import Sequence
from textwrap import wrap

_APART = 3  # spaces between the columns of a ruled table
_LEAST = 4  # characters in the narrowest column


def wrapped(text: str, width: int) -> list[str]:
    """Lines no longer than this; those that there are begin anew."""
    return [
        line
        for part in text.split("\n")
        for line in wrap(part, max(width, 1), break_on_hyphens=False) or [""]
    ]


def in_columns(rows: Sequence[Sequence[str]], width: int, *, apart: int) -> list[str]:
    """Cells beside each other, each as wide as its column needs or, all in all, can be."""
    widths = _widths(rows, width, apart)
    return [_row(line, widths, apart) for row in rows for line in _lines(row, widths)]


def ruled(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table with a line below its head, numbers to the right of their columns, and air."""
    widths = _widths([head, *rows], width - 2, _APART)
    rule = "─" * (sum(widths) + _APART * (len(widths) - 1))
    headings, *others = [
        [f" {_row(line, widths, _APART, numbers=True)}" for line in _lines(row, widths)]
        for row in (head, *rows)
    ]
    return ["", *headings, f" {rule}", *(line for lines in others for line in lines), ""]


def _widths(rows: Sequence[Sequence[str]], width: int, apart: int) -> list[int]:
    """The width of each column: its longest line, the widest made narrower if there is no room."""
    widths = [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*rows, strict=True)
    ]
    room = width - apart * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """The row as lines of cells, as many as the highest of them has."""
    cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    return [[cell[k] if k < len(cell) else "" for cell in cells] for k in range(height)]


def _row(cells: Sequence[str], widths: Sequence[int], apart: int, *, numbers: bool = False) -> str:
    first, *others = zip(cells, widths, strict=True)
    placed = [first[0].ljust(first[1])]
    placed += [cell.rjust(width) if numbers else cell.ljust(width) for cell, width in others]
    return (" " * apart).join(placed).rstrip()
