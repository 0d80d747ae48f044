"""A file of entries, one a line, each with the hash of the one before.

It is only ever appended to, by one writer at a time, and an entry is on the disk before the writer
hears of it.  A writer that dies in the middle leaves a last line without an end.  Nobody acted upon
it, so the next writer removes it, and says in its own entry how long it was; unless nothing but the
end is missing, when the end is added.  A file that holds no whole entry is refused.

The chain shows that nothing before its head was changed.  It cannot show that nothing after was cut
off: for that keep the head somewhere else, or give a witness, which is looked at before every
reading and written after every entry.  What was read once is not read again, so that one more entry
costs as much however many there are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lastiterate._files import with_an_end
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger.file_lock import locked
from lastiterate.ledger.journal_lines import Entry, entry_of, line_of, sync_folder
from lastiterate.ledger.witness import Witness

_TORN = "torn line before, bytes"


class Journal:
    """The entries of a file, and the one way to add more."""

    def __init__(self, path: str | Path, *, witness: Witness | None = None) -> None:
        self.path = Path(path)
        self.witness = witness
        self._known: list[Entry] = []
        self._length = 0  # of what is known, in bytes
        self._turn = threading.Lock()

    def entries(self) -> Sequence[Entry]:
        """All that are whole, the chain checked."""
        with self._turn, with_an_end(self.path).open("rb") as file:
            seen = None if self.witness is None else self.witness.head()
            self._take_up(file.fileno())
            if self.witness is not None:
                self.witness.check(seen, self._known, os.fspath(self.path))
            return tuple(self._known)

    def append(self, made_of: Callable[[Sequence[Entry]], Mapping[str, Any]]) -> Entry:
        """Add what the function makes of the entries so far; it may raise instead."""
        with self._turn, _opened(self.path) as descriptor, locked(descriptor):
            rest = self._whole_lines(descriptor)
            if rest and not self._known:  # never replaced: it may be anybody's
                why = (
                    "it is no ledger: it holds no whole line; delete it if it is left of an "
                    "attempt to open one"
                )
                raise InvalidLedger(os.fspath(self.path), [why])
            if self.witness is not None:
                self.witness.check(self.witness.head(), self._known, os.fspath(self.path))
            content = dict(made_of(self._known))
            if rest:
                os.ftruncate(descriptor, self._length)
                content[_TORN] = len(rest)
            _write(descriptor, line_of(content, self._known), at=self._length)
            self._take_up(descriptor)
            if len(self._known) == 1:
                sync_folder(self.path.parent)
            if self.witness is not None:
                self.witness.note(self._known)
            return self._known[-1]

    def write_witness(self, witness: Witness) -> None:
        """Begin a file, which is not the journal, that shows how far the entries have come."""
        if witness.path.resolve() == self.path.resolve():
            must_be = "another file than the ledger, which it would replace"
            raise InvalidParameter("path", str(witness.path), must_be=must_be)
        with self._turn, _opened(self.path) as descriptor, locked(descriptor):
            self._whole_lines(descriptor)
            witness.begin(self._known)
            self.witness = witness

    def _whole_lines(self, descriptor: int) -> bytes:
        """Read on, and end the last line if nothing but its end is missing; what is left."""
        rest = self._take_up(descriptor)
        if not rest or (finished := entry_of(rest, self._known)) is None:
            return rest
        _write(descriptor, b"\n", at=self._length + len(rest))
        self._known.append(finished)
        self._length += len(rest) + 1
        return b""

    def _take_up(self, descriptor: int) -> bytes:
        """Read on from what is known; what comes after the last whole line."""
        if os.fstat(descriptor).st_size < self._length:
            raise InvalidLedger(str(self.path), ["it is shorter than it was"])
        os.lseek(descriptor, self._length, os.SEEK_SET)
        *lines, rest = _read(descriptor).split(b"\n")
        for line in lines:
            entry = entry_of(line, self._known)
            if entry is None:
                where = f"line {len(self._known) + 1} does not follow from the lines before it"
                raise InvalidLedger(str(self.path), [where])
            self._known.append(entry)
            self._length += len(line) + 1
        return rest


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    if path.exists():
        with_an_end(path)
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
