"""Lines of a journal: entries, the hashes that chain them, and how bytes reach the disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastiterate.run.serialise import unambiguous_json

Entry = Mapping[str, Any]
BEFORE_ALL = "0" * 64
_FORMATS = "lastiterate ledger "


def head(entries: Sequence[Entry]) -> str:
    """The hash of the last entry, which depends on all."""
    return str(entries[-1]["hash"]) if entries else BEFORE_ALL


def line_of(content: Mapping[str, Any], before: Sequence[Entry]) -> bytes:
    """The line of an entry that comes after these."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"n": len(before), "time": now, **content, "previous": head(before)}
    return _text(entry | {"hash": hash_of(entry)}) + b"\n"


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
    return not rest and bool(entries) and str(entries[0].get("format")).startswith(_FORMATS)


def _text(entry: Mapping[str, Any]) -> bytes:
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
