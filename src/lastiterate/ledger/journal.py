"""A file of entries, one a line, each with the hash of the one before.

It is only ever appended to, by one writer at a time, and an entry is on the disk before the writer
hears of it.  A writer that dies in the middle leaves a last line without an end.  Nobody acted upon
it, so the next writer removes it, and says in its own entry how long it was; unless nothing but the
end is missing, when the end is added.

The chain shows that nothing before its head was changed.  It cannot show that nothing after was cut
off: for that keep the head somewhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidLedger
from lastiterate.ledger.file_lock import locked
from lastiterate.run.serialise import unambiguous_json

Entry = Mapping[str, Any]
BEFORE_ALL = "0" * 64
_TORN = "torn line before, bytes"


class Journal:
    """The entries of a file, and the one way to add more."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._known: list[Entry] = []
        self._length = 0  # of what is known, in bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def entries(self) -> Sequence[Entry]:
        """All that are whole, the chain checked."""
        with self.path.open("rb") as file:
            self._take_up(file.fileno())
        return tuple(self._known)

    def append(self, made_of: Callable[[Sequence[Entry]], Mapping[str, Any]]) -> Entry:
        """Add what the function makes of the entries so far; it may raise instead."""
        with _opened(self.path) as descriptor, locked(descriptor):
            rest = self._take_up(descriptor)
            if rest and (finished := _entry(rest, self._known)) is not None:
                _write(descriptor, b"\n", at=self._length + len(rest))
                self._known.append(finished)
                self._length += len(rest) + 1
                rest = b""
            content = dict(made_of(tuple(self._known)))
            if rest:
                os.ftruncate(descriptor, self._length)
                content[_TORN] = len(rest)
            line = _line(content, self._known)
            _write(descriptor, line, at=self._length)
            self._take_up(descriptor)
        if len(self._known) == 1:
            _sync_folder(self.path.parent)
        return self._known[-1]

    def _take_up(self, descriptor: int) -> bytes:
        """Read on from what is known; what comes after the last whole line."""
        if os.fstat(descriptor).st_size < self._length:
            raise InvalidLedger(str(self.path), ["it is shorter than it was"])
        os.lseek(descriptor, self._length, os.SEEK_SET)
        *lines, rest = _read(descriptor).split(b"\n")
        for line in lines:
            entry = _entry(line, self._known)
            if entry is None:
                where = f"line {len(self._known) + 1} does not follow from the lines before it"
                raise InvalidLedger(str(self.path), [where])
            self._known.append(entry)
            self._length += len(line) + 1
        return rest


def head(entries: Sequence[Entry]) -> str:
    """The hash of the last entry, which depends on all."""
    return str(entries[-1]["hash"]) if entries else BEFORE_ALL


def _line(content: Mapping[str, Any], before: Sequence[Entry]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"n": len(before), "time": now, **content, "previous": head(before)}
    return _text(entry | {"hash": _hash(entry)}) + b"\n"


def _entry(line: bytes, before: Sequence[Entry]) -> Entry | None:
    """The entry of this line, if it comes after those before it."""
    try:
        entry = unambiguous_json(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    content = {name: value for name, value in entry.items() if name != "hash"}
    follows = (
        entry.get("n") == len(before)
        and entry.get("previous") == head(before)
        and entry.get("hash") == _hash(content)
    )
    return entry if follows else None


def _text(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()


def _hash(content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes, *, at: int) -> None:
    """All of it, on the disk; where that fails, none of it."""
    os.lseek(descriptor, at, os.SEEK_SET)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, at)
        raise


def _sync_folder(folder: Path) -> None:
    """Flush the folder, so that the file's name is on the disk, too; only on POSIX systems."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
