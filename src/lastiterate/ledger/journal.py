"""A file of entries, one a line, each with the hash of the one before.

It is only ever appended to, by one writer at a time, and an entry is on the disk before the writer
hears of it.  A writer that dies in the middle leaves a last line without an end.  Nobody acted upon
it, so the next writer removes it, and says in its own entry how long it was; unless nothing but the
end is missing, when the end is added.  A file that holds no whole entry is refused.

The chain shows that nothing before its head was changed.  It cannot show that nothing after was cut
off, or that an older copy was not put back: for that keep the head somewhere else, or give a
witness, which is looked at before every reading and written after every entry.  A witness names
the ledger by the hash of its first entry, and the last entry by its number and hash.  It is
replaced as a whole once that entry is on the disk, so that a writer who dies in between leaves a
witness that is behind, never one that is ahead.

What was read once is not read again, so that one more entry takes as long however many there are.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastiterate._files import IsOurs, with_an_end
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.run.serialise import unambiguous_json

_TORN_BYTES = "torn line before, bytes"
Entry = Mapping[str, Any]
BEFORE_ALL = "0" * 64
_FORMATS_BEGIN = "lastiterate ledger "
HEAD_FORMAT = "lastiterate ledger head 1"
_HEAD_KEYS = {"format", "ledger", "n", "hash", "signature"}


class Journal:
    """The entries of a file, and the one way to add more."""

    def __init__(self, path: str | Path, *, witness: Witness | None = None) -> None:
        self.path = Path(path)
        self.witness = witness
        self._known: list[Entry] = []
        self._length = 0  # of what is known, in bytes
        self._turn = threading.Lock()

    def entries(self) -> Sequence[Entry]:
        """All whole entries, after the chain was checked."""
        with self._turn, with_an_end(self.path).open("rb") as file:
            seen = None if self.witness is None else self.witness.head()
            self._take_up(file.fileno())
            if self.witness is not None:
                self.witness.check(seen, self._known, os.fspath(self.path))
            return tuple(self._known)

    def append(self, make: Callable[[Sequence[Entry]], Mapping[str, Any]]) -> Entry:
        """Add and return what the function makes of the entries so far; it may raise instead."""
        with self._turn, _open(self.path) as descriptor, locked(descriptor):
            rest = self._whole_lines(descriptor)
            if rest and not self._known:  # never replaced: it may be anybody's
                why = (
                    "it is no ledger: it holds no whole line; delete it if it is left of an "
                    "attempt to open one"
                )
                raise InvalidLedger(os.fspath(self.path), [why])
            if self.witness is not None:
                self.witness.check(self.witness.head(), self._known, os.fspath(self.path))
            content = dict(make(self._known))
            if rest:
                os.ftruncate(descriptor, self._length)
                content[_TORN_BYTES] = len(rest)
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
        with self._turn, _open(self.path) as descriptor, locked(descriptor):
            self._whole_lines(descriptor)
            witness.begin(self._known)
            self.witness = witness

    def _whole_lines(self, descriptor: int) -> bytes:
        """Read on, and end the last line if nothing but its end is missing; return what is left."""
        rest = self._take_up(descriptor)
        if not rest or (finished := entry_of(rest, self._known)) is None:
            return rest
        _write(descriptor, b"\n", at=self._length + len(rest))
        self._known.append(finished)
        self._length += len(rest) + 1
        return b""

    def _take_up(self, descriptor: int) -> bytes:
        """Read on from what is known; return what comes after the last whole line."""
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
def _open(path: Path) -> Iterator[int]:
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
    """Write all of the data to the disk or, where that fails, none of it."""
    os.lseek(descriptor, at, os.SEEK_SET)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, at)
        raise


def head(entries: Sequence[Entry]) -> str:
    """The hash of the last entry, which depends on all."""
    return str(entries[-1]["hash"]) if entries else BEFORE_ALL


def line_of(content: Mapping[str, Any], before: Sequence[Entry]) -> bytes:
    """The line of an entry that comes after these."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"n": len(before), "time": now, **content, "previous": head(before)}
    return _compact_json(entry | {"hash": hash_of(entry)}) + b"\n"


def entry_of(line: bytes, before: Sequence[Entry]) -> Entry | None:
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
        and entry.get("hash") == hash_of(content)
    )
    return entry if follows else None


def is_journal(content: bytes) -> bool:
    """Whether a file is a ledger, of any version: a chain of whole entries, and nothing else."""
    *lines, rest = content.split(b"\n")
    entries: list[Entry] = []
    for line in lines:
        if (entry := entry_of(line, entries)) is None:
            return False
        entries.append(entry)
    return not rest and bool(entries) and str(entries[0].get("format")).startswith(_FORMATS_BEGIN)


def _compact_json(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()


def hash_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of an entry without its hash."""
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush the folder, so that the file's name is on the disk, too; only on POSIX systems."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt
    import time

    # A byte that no ledger reaches: what is locked there cannot be read by others.
    _FAR_AWAY = 1 << 60

    @contextmanager
    def locked(descriptor: int) -> Iterator[None]:
        """A context in which no other open file of the same path is locked."""
        while True:
            os.lseek(descriptor, _FAR_AWAY, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                break
            except OSError:
                time.sleep(0.01)
        try:
            yield
        finally:
            os.lseek(descriptor, _FAR_AWAY, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    @contextmanager
    def locked(descriptor: int) -> Iterator[None]:
        """A context in which no other open file of the same path is locked.

        The system unlocks the file of a process that was killed.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Head:
    """The last entry of a ledger at some time."""

    ledger: str
    n: int
    hash: str

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Head:
        """The head of these entries, of which there is at least one."""
        return cls(entries[0]["hash"], entries[-1]["n"], entries[-1]["hash"])

    @classmethod
    def from_text(cls, text: str, where: str) -> Head:
        """The head of a file; `InvalidLedger` if it is none."""
        try:
            record = unambiguous_json(text)
            if record["format"] != HEAD_FORMAT or not isinstance(record["n"], int):
                raise ValueError(HEAD_FORMAT)
            return cls(str(record["ledger"]), record["n"], str(record["hash"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise InvalidLedger(where, [f"it is no {HEAD_FORMAT!r}"]) from None

    def as_text(self) -> str:
        """The head as one line of JSON."""
        record = {"format": HEAD_FORMAT, "ledger": self.ledger, "n": self.n, "hash": self.hash}
        return json.dumps(record) + "\n"

    def missing_from(self, entries: Sequence[Entry]) -> str | None:
        """Why these entries do not contain this head; None if they do."""
        if not entries or entries[0]["hash"] != self.ledger:
            return "it is not the ledger that the kept head is of"
        if self.n >= len(entries):
            return (
                f"it ends at entry {len(entries) - 1}, and had entry {self.n}: an older copy was "
                "put back, or its end was cut off"
            )
        if entries[self.n]["hash"] != self.hash:
            return f"entry {self.n} is another than it was: entries were written anew"
        return None


def is_head(content: bytes) -> bool:
    """Whether a file is the head of a ledger, signed or not, and nothing else."""
    try:
        Head.from_text(text := content.decode("utf-8"), "the head")
    except (InvalidLedger, ValueError):
        return False
    return set(json.loads(text)) <= _HEAD_KEYS


class Witness:
    """The file of the head of one ledger."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def head(self) -> Head | None:
        """The head that the file names; None if there is no file."""
        try:
            text = with_an_end(self.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return Head.from_text(text, os.fspath(self.path))

    def check(self, head: Head | None, entries: Sequence[Entry], where: str) -> None:
        """Refuse entries that the head, read before they were, is not one of."""
        if not entries and head is None:
            return
        reason = (
            f"its witness {os.fspath(self.path)} is missing; `write_witness` begins one"
            if head is None
            else head.missing_from(entries)
        )
        if reason is not None:
            raise InvalidLedger(where, [reason])

    def begin(self, entries: Sequence[Entry]) -> None:
        """Begin the file, in the place of nothing but an earlier head of the same ledger."""
        refuse_replacing_head("path", self.path, entries)
        self.note(entries)

    def note(self, entries: Sequence[Entry]) -> None:
        """Replace the file by one of these entries, which are on the disk."""
        path = self.path.resolve()  # a link to it stays one
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with beside.open("x", encoding="utf-8") as file:
                file.write(Head.of(entries).as_text())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def is_earlier_head(path: Path, entries: Sequence[Entry]) -> IsOurs:
    """Recognises heads that these entries contain."""

    def is_earlier(content: bytes) -> bool:
        try:
            head = Head.from_text(content.decode("utf-8"), os.fspath(path))
        except (InvalidLedger, ValueError):
            return False
        return is_head(content) and head.missing_from(entries) is None

    return is_earlier


def refuse_replacing_head(name: str, path: Path, entries: Sequence[Entry]) -> None:
    """Raise unless nothing is there, or a head that these entries contain.

    What shows that a ledger went back, or is of another ledger, must not be lost.
    """
    if not os.path.lexists(path):
        return
    if not (path.is_file() and is_earlier_head(path, entries)(path.read_bytes())):
        must_be = "a new file, or one of an earlier head of this very ledger"
        found = f"{path}, which is neither and is never replaced"
        raise InvalidParameter(name, must_be=must_be, found=found)
