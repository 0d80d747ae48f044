"""Files that are written whole or not at all, and only in the place of one that was ours.

No option makes the library destroy a file that it did not write: whatever is replaced is recognised
first, by what is in it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidParameter

IsOurs = Callable[[bytes], bool]
_NOT_OURS = "which was not written by lastiterate and is never replaced"


def has(mark: bytes) -> IsOurs:
    """Recognises files that contain this mark of ours."""
    return lambda content: mark in content


def is_record(known: Callable[[Mapping[str, Any]], bool]) -> IsOurs:
    """Recognises JSON objects of which this is true."""

    def is_ours(content: bytes) -> bool:
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and known(record)

    return is_ours


def refuse_replacing(
    name: str,
    path: str | Path,
    is_ours: IsOurs | None = None,
    *,
    allowed: bool = True,
    new: str = "a new file",
    remedy: str = "",
) -> None:
    """Raise unless no file is there, or one that is ours and may be replaced.

    `name` is of the argument that the path is from, and `remedy` says what allows to replace.  A
    kind of file that cannot be recognised is never replaced.
    """
    path = Path(path)
    if not os.path.lexists(path):
        return
    if path.is_dir():
        raise InvalidParameter(name, must_be="a file", found=f"{path}, which is a folder")
    ours = is_ours is not None and path.is_file() and is_ours(path.read_bytes())
    if ours and allowed:
        return
    must_be = f"{new}{f'; {remedy}' if ours and remedy else ''}"
    found = f"{path}, which exists" if ours or is_ours is None else f"{path}, {_NOT_OURS}"
    raise InvalidParameter(name, must_be=must_be, found=found)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or, if interrupted, not at all."""
    draft = draft_beside(path, content)
    try:
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def draft_beside(path: Path, content: str | bytes) -> Path:
    """A file beside this path, of a name that none had, with what is to be there."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    with draft.open("xb") as file:
        try:
            file.write(content.encode() if isinstance(content, str) else content)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    return draft
