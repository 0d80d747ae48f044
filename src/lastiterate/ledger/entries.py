"""Entries of a ledger: its first line, charges and what became of them, and their verification."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import lastiterate
from lastiterate import _check
from lastiterate.certificate.fields import training_digest
from lastiterate.certificate.verify import READ_ERRORS, refuse_other_version, verified_certificate
from lastiterate.errors import (
    InvalidLedger,
    InvalidParameter,
    OtherVersion,
    OtherVersionCertificate,
)
from lastiterate.ledger.charges import PER_PERSON, Charge, Unit, costs_of, is_charge_of
from lastiterate.ledger.costs import Cost, RunningCosts, understated
from lastiterate.ledger.journal import Entry, Journal
from lastiterate.run.training_run import ADJACENCIES

OPENED, RESERVED, ADDED = "opened", "reserved", "added"
SETTLED, WITHDRAWN = "settled", "withdrawn"
PUBLISHED = "published already"
CHARGE_KINDS = (RESERVED, ADDED)
FORMAT = "lastiterate ledger 3"  # since then charges list "other_releases"
_DEFAULTS = {"adjacency": "replace", PER_PERSON: 1, "adaptive": False, "seeded": False}
_CHECKS: dict[str, Any] = {
    "epsilon": lambda value: _check.number("epsilon", value, above=0.0),
    "delta": lambda value: _check.number("delta", value, above=0.0, below=1.0),
    "adjacency": lambda value: _check.choice("adjacency", value, among=ADJACENCIES),
    PER_PERSON: lambda value: _check.count(PER_PERSON, value, at_least=1),
    "adaptive": bool,
    "seeded": bool,
}


class LedgerState:
    """Charges by their id, what became of them, and their costs as they were composed so far."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.charges: dict[str, Entry] = {}
        self.ends: dict[str, Entry] = {}
        self.running = RunningCosts()
        self._digests: dict[str, int] = {}
        self._length = 0
        self.follow(entries)

    def follow(self, entries: Sequence[Entry]) -> LedgerState:
        """This state, after it applied the entries that it has not seen: all but the first ones."""
        for entry in islice(entries, self._length, None):
            self._apply(entry)
            self._length += 1
        return self

    def _apply(self, entry: Entry) -> None:
        id_ = entry.get("id", "")
        if entry["what"] in CHARGE_KINDS:
            self.charges[id_] = entry
            self.running.include(entry["costs"])
        elif entry["what"] in (SETTLED, WITHDRAWN):
            counted = not self.is_withdrawn(id_)
            self.ends[id_] = entry
            if counted and self.is_withdrawn(id_) and id_ in self.charges:
                self.running.include(self.charges[id_]["costs"], sign=-1)
        certificate: Mapping[str, Any] = entry.get("certificate", {})
        if "digest" in certificate:
            self._digests[training_digest(certificate)] = entry["n"]

    def costs(self) -> list[Cost]:
        """Costs of all charges that were not withdrawn, settled or not."""
        return [
            cost
            for id_, entry in self.charges.items()
            if not self.is_withdrawn(id_)
            for cost in entry["costs"]
        ]

    def by_time(self) -> tuple[list[Cost], list[Cost], list[Cost]]:
        """Costs in three lists: published before any other charge, published later, all others."""
        before: list[Cost] = []
        late: list[Cost] = []
        chosen: list[Cost] = []
        for id_, entry in self.charges.items():
            if self.is_withdrawn(id_):
                continue
            if not entry.get(PUBLISHED, False):
                chosen += entry["costs"]
            else:
                (late if chosen else before).extend(entry["costs"])
        return before, late, chosen

    def is_withdrawn(self, id_: str) -> bool:
        return id_ in self.ends and self.ends[id_]["what"] == WITHDRAWN

    def state(self, id_: str) -> str:
        """The state of a charge: added at once, settled, withdrawn, or still reserved."""
        if self.charges[id_]["what"] == ADDED:
            return ADDED
        return str(self.ends[id_]["what"]) if id_ in self.ends else RESERVED

    def entry_of(self, digest: str) -> int | None:
        """The number of the entry that has a certificate of this training."""
        return self._digests.get(digest)

    def open_charge(self, id_: str) -> Charge:
        """The charge that is reserved under this id, and is neither settled nor withdrawn."""
        reserved = id_ in self.charges and self.state(id_) == RESERVED
        if not reserved:
            must_be = "of a reservation that is neither settled nor withdrawn"
            raise InvalidParameter("id", id_, must_be=must_be)
        charge: Charge = self.charges[id_]["charge"]
        return charge


def open_entry(journal: Journal, **given: Any) -> Entry:
    """The first entry of a ledger, which is made if there is none.

    What was given must agree with it; None is not given.
    """
    said = {name: None if given[name] is None else _CHECKS[name](given[name]) for name in _CHECKS}
    if not (journal.path.exists() and journal.entries()):
        _create(journal, said)
    entry = journal.entries()[0]
    opened, stated = entry.get("what") == OPENED, str(entry.get("format"))
    if opened and stated != FORMAT and re.fullmatch(r"lastiterate ledger \d+", stated):
        where = f"the ledger {os.fspath(journal.path)}"
        raise OtherVersion.of(where, repr(stated), repr(FORMAT), entry.get("software"))
    if not opened or stated != FORMAT:
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
    chosen = {name: _DEFAULTS.get(name) if one is None else one for name, one in said.items()}
    software = f"lastiterate {lastiterate.__version__}"

    def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
        if before:
            raise _AlreadyOpenError
        id_ = secrets.token_hex(8)  # so that no two ledgers begin alike
        return {"what": OPENED, "id": id_, "format": FORMAT, "software": software, **chosen}

    try:
        journal.append(entry)
    except _AlreadyOpenError:
        return  # by another process, just now


class _AlreadyOpenError(Exception):
    """Another process opened the ledger first."""


def wrong_entries(entries: Sequence[Entry], unit: Unit) -> list[str]:
    """Why entries do not say what follows from what they say; none if they do."""
    reasons = []
    known: dict[str, Entry] = {}
    open_: set[str] = set()
    digests: dict[str, int] = {}
    for entry in entries[1:]:
        try:
            wrong = _wrong_entry(entry, known, open_, digests, unit)
            reasons += [f"entry {entry['n']} {why}" for why in wrong]
        except READ_ERRORS as error:
            reasons.append(f"entry {entry.get('n')} cannot be read ({error!r})")
    return reasons


def _wrong_entry(
    entry: Entry,
    known: dict[str, Entry],
    open_: set[str],
    digests: dict[str, int],
    unit: Unit,
) -> list[str]:
    reasons: list[str] = []
    what, id_ = entry["what"], entry.get("id", "")
    if what == OPENED or what not in (*CHARGE_KINDS, SETTLED, WITHDRAWN):
        return [f"is {what!r}"]
    if what in CHARGE_KINDS:
        if id_ in known:
            reasons.append("has an id that another has")
        known[id_] = entry
        reasons += _wrong_costs(entry, unit)
    elif id_ not in open_:
        return ["ends what was not reserved, or ended before"]
    if what == RESERVED:
        open_.add(id_)
    elif what != ADDED:
        open_.discard(id_)
    if "certificate" in entry:
        record = entry["certificate"]
        try:
            verified_certificate(json.dumps(record))
        except OtherVersionCertificate:
            # Its cost follows from the charge alone; `of_other_versions` lists it.
            return reasons
        if not is_charge_of(known[id_]["charge"], record):
            reasons.append("has a certificate of something else than it charges")
        digest = training_digest(record)
        if digest in digests:
            reasons.append(f"has the certificate of entry {digests[digest]}")
        digests[digest] = entry["n"]
    return reasons


def _wrong_costs(entry: Entry, unit: Unit) -> list[str]:
    derived = costs_of(entry["charge"], unit)
    stated = entry["costs"]
    if len(derived) != len(stated) or any(map(understated, stated, derived)):
        return ["costs other than follow from its charge"]
    return []


def of_other_versions(entries: Sequence[Entry]) -> list[int]:
    """Entries whose certificates other versions issued, which this one cannot derive again."""
    found = []
    for entry in entries:
        try:
            refuse_other_version(entry.get("certificate", {}))
        except OtherVersionCertificate:
            found.append(entry["n"])
    return found
