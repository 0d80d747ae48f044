"""The first line of a ledger: its budget, and the unit of privacy in which it counts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import lastiterate
from lastiterate import _check
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger.book import OPENED
from lastiterate.ledger.journal import Entry, Journal
from lastiterate.ledger.unit import ADJACENCIES, PER_PERSON

FORMAT = "lastiterate ledger 3"  # since then charges list "other_releases"
_USUAL = {"adjacency": "replace", PER_PERSON: 1, "adaptive": False, "seeded": False}
_CHECKS: dict[str, Any] = {
    "epsilon": lambda value: _check.number("epsilon", value, above=0.0),
    "delta": lambda value: _check.number("delta", value, above=0.0, below=1.0),
    "adjacency": lambda value: _check.choice("adjacency", value, among=ADJACENCIES),
    PER_PERSON: lambda value: _check.count(PER_PERSON, value, at_least=1),
    "adaptive": bool,
    "seeded": bool,
}


def opened(journal: Journal, **given: Any) -> Entry:
    """The first entry of a ledger, which is made if there is none; what is None is not given."""
    said = {name: None if given[name] is None else _CHECKS[name](given[name]) for name in _CHECKS}
    if not (journal.path.exists() and journal.entries()):
        _create(journal, said)
    entry = journal.entries()[0]
    if entry.get("what") != OPENED or entry.get("format") != FORMAT:
        found = f"its first line is of {entry.get('format')!r}, and must be of {FORMAT!r}"
        raise InvalidLedger(os.fspath(journal.path), [found])
    for name, value in said.items():
        if value is not None and value != entry[name]:
            must_be = f"{entry[name]!r}, as the ledger was opened with, or left out"
            raise InvalidParameter(name.replace("seeded", "allow_seeded"), value, must_be=must_be)
    return entry


def _create(journal: Journal, said: Mapping[str, Any]) -> None:
    for name in ("epsilon", "delta"):
        if said[name] is None:
            must_be = f"given, as there is no ledger {os.fspath(journal.path)} yet"
            raise InvalidParameter(name, None, must_be=must_be)
    chosen = {name: _USUAL.get(name) if one is None else one for name, one in said.items()}
    software = f"lastiterate {lastiterate.__version__}"

    def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
        if before:
            raise _AlreadyOpenError
        return {"what": OPENED, "format": FORMAT, "software": software, **chosen}

    try:
        journal.append(entry)
    except _AlreadyOpenError:
        return  # by another process, just now


class _AlreadyOpenError(Exception):
    """Another process opened the ledger first."""
