"""The first line of a CSV file.

Names are published, so no row may be taken for them.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import TextIOBase
from typing import Any, NoReturn

from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import MISSING

_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_BEGINNINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a spreadsheet or an archive"}
_SAMPLE = 1_000  # rows in which a name is looked for


def check_bytes(path: str, first: bytes) -> None:
    """That a file is text in UTF-8, by its first bytes."""
    found = next((what for mark, what in _BEGINNINGS.items() if first.startswith(mark)), None)
    if found is None and b"\x00" in first:
        found = "bytes of value 0, as in UTF-16"
    if found is not None:
        refuse_encoding(path, found)


def refuse_encoding(path: str, found: str) -> NoReturn:
    """Text that is not UTF-8."""
    must_be = "a CSV file in UTF-8: save it so, or convert it (iconv -f UTF-16 -t UTF-8)"
    raise InvalidParameter("data", must_be=must_be, found=f"{found} in {path}")


def rows_of(text: TextIOBase, delimiter: str) -> Any:
    """The rows, cells without the blanks after a delimiter."""
    return csv.reader(text, delimiter=delimiter, skipinitialspace=True)


def checked_names(path: str, line: Sequence[str], delimiter: str) -> tuple[str, ...]:
    """The names in a first line, unless it reads like something else."""
    names = tuple(name.strip() for name in line)
    if not any(names):
        raise InvalidParameter("data", path, must_be="a file with columns and rows")
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        must_be = f"separated by commas, unless --delimiter says otherwise (here: {other!r})"
        raise InvalidParameter("data", must_be=must_be, found=_DELIMITERS[other])
    if "" in names or (not _is_numbered(names) and any(map(_is_number, names))):
        _refuse_header(path, "a number or nothing in its place")
    if len(set(names)) != len(names):
        must_be = "a file whose first line has different names for all columns"
        raise InvalidParameter("data", path, must_be=must_be)
    return names


def check_is_no_row(path: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """That no name occurs again below itself, among others, as a value does.

    Where nothing else occurs, it is the name of an answer that some gave.
    """
    if _is_numbered(names):
        return
    for k, name in enumerate(names):
        below = {row[k].strip() for row in rows[:_SAMPLE] if k < len(row)} - MISSING
        if name in below and len(below) > 1:
            _refuse_header(path, "a first line with a value that occurs below")


def _refuse_header(path: str, found: str) -> NoReturn:
    must_be = f"the names of the columns, none of them a number: add such a line to {path}"
    raise InvalidParameter("the first line", must_be=must_be, found=found)


def _is_numbered(names: Sequence[str]) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
