"""Files that are written whole or not at all, and only in the place of one that was ours.

No option makes the library destroy a file that it did not write: whatever is replaced is recognised
first, by what is in it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidParameter

IsOurs = Callable[[bytes], bool]
_NOT_OURS = "which was not written by lastiterate, or was edited since, and is never replaced"
_SEAL = "\n{}lastiterate wrote what is above, of sha256 {}{}\n"
_SEALED = re.compile(
    rb"\n[^\n]{,5}lastiterate wrote what is above, of sha256 ([0-9a-f]{64})[^\n]{,4}\n\Z"
)
# The start of whole pages, by which ours are recognised.
PAGE_START = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="lastiterate">
"""


def with_an_end(path: Path) -> Path:
    """The path, to be read; `OSError` for pipes and devices, which cannot be read again."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode):
        raise OSError(f"{path} is no file that has an end: it is a pipe or a device")
    return path


def sealed(content: bytes, *, comment: tuple[str, str] = ("<!-- ", " -->")) -> bytes:
    """The content with a last line by which it is recognised until somebody edits it."""
    before, after = comment
    return content + _SEAL.format(before, sha256(content).hexdigest(), after).encode()


def is_sealed(content: bytes) -> bool:
    """Whether `sealed` gave this."""
    found = _SEALED.search(content[-200:])
    return found is not None and (
        sha256(content[: -len(found[0])]).hexdigest().encode() == found[1]
    )


def is_page(content: bytes) -> bool:
    """Whether a file is a whole page of ours, as it was written."""
    return content.startswith(PAGE_START.encode()) and is_sealed(content)


def was_sealed(content: bytes) -> bool:
    """Whether it ends as if `sealed` gave it, also if it was edited since."""
    return _SEALED.search(content[-200:]) is not None


def begins_with(start: bytes) -> IsOurs:
    """Recognises files that begin with these bytes, which only ours do."""
    return lambda content: content.startswith(start)


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


def write_whole(
    name: str, path: Path, content: str | bytes, replaces: IsOurs | None = None, remedy: str = ""
) -> None:
    """Write a file completely or, if interrupted, not at all; see `write_files`."""
    write_files(name, {path: content}, {path: replaces}, remedy=remedy)


def write_files(
    name: str,
    contents: Mapping[Path, str | bytes],
    replaces: Mapping[Path, IsOurs | None],
    *,
    remedy: str = "",
) -> None:
    """Write all files or, if one is refused, none; `name` is of the argument with the paths.

    Whatever is at a path by now, even if it came after an earlier check, is kept unless it is
    recognised as ours.  Links stay, and what they lead to is replaced.
    """

    def refuse(path: Path) -> None:
        refuse_replacing(name, path, replaces[path], remedy=remedy)

    for path in contents:
        refuse(path)
    real = {path: Path(os.path.realpath(path)) for path in contents}
    if len(set(real.values())) < len(real):
        must_be = "another path for every file"
        raise InvalidParameter(name, must_be=must_be, found=", ".join(map(str, contents)))
    drafts: dict[Path, Path] = {}
    new: list[Path] = []
    earlier: dict[Path, Path] = {}  # what was replaced
    try:
        for path, content in contents.items():
            drafts[path] = _draft_beside(real[path], content)
        for path in contents:
            refuse(path)
        for path, draft in drafts.items():
            final = real[path]
            if not os.path.lexists(path) and _put(draft, final):
                new.append(final)
                continue
            kept = draft.with_suffix(".earlier")
            refuse(path)
            if not _put(final, kept):
                raise FileExistsError(f"{kept} exists")
            earlier[final] = kept
            draft.replace(final)
    except BaseException:
        for final in new:
            final.unlink(missing_ok=True)
        for final, kept in earlier.items():
            kept.replace(final)
        raise
    finally:
        for left in (*drafts.values(), *earlier.values()):
            left.unlink(missing_ok=True)


def _put(draft: Path, final: Path) -> bool:
    """Whether the draft was put at a path where nothing was; the system decides, not a look."""
    try:
        os.link(draft, final)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        return _put_anew(draft.read_bytes(), final)
    return True


def _put_anew(content: bytes, final: Path) -> bool:
    try:
        file = final.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except BaseException:
        final.unlink(missing_ok=True)
        raise
    return True


def _draft_beside(path: Path, content: str | bytes) -> Path:
    """A file beside this path, of a name that none had, with what is to be there."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    file = draft.open("xb")
    try:
        with file:  # what is left in its buffer is written here, too, and may fail
            file.write(content.encode() if isinstance(content, str) else content)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = os.fspath(path)  # such as of a disk that is full
        raise
    return draft
