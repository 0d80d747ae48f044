"""A file, kept elsewhere, of how far a ledger had come: it shows that an older copy was put back.

It names the ledger by the hash of its first entry, and the last entry by its number and hash.  It
is replaced as a whole after every entry, once that is on the disk, so that a writer who dies in
between leaves a witness that is behind, never one that is ahead.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lastiterate._files import IsOurs, with_an_end
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger.journal_lines import Entry, sync_folder
from lastiterate.run.serialise import unambiguous_json

FORMAT = "lastiterate ledger head 1"
_KEYS = {"format", "ledger", "n", "hash", "signature"}


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
            if record["format"] != FORMAT or not isinstance(record["n"], int):
                raise ValueError(FORMAT)
            return cls(str(record["ledger"]), record["n"], str(record["hash"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise InvalidLedger(where, [f"it is no {FORMAT!r}"]) from None

    def as_text(self) -> str:
        """The head as one line of JSON."""
        record = {"format": FORMAT, "ledger": self.ledger, "n": self.n, "hash": self.hash}
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
    return set(json.loads(text)) <= _KEYS


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
