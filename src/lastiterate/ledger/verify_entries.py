"""Derives every entry of a ledger again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lastiterate.certificate.statements import training_digest
from lastiterate.certificate.verify import READ_ERRORS, verified_certificate
from lastiterate.ledger.book import ADDED, CHARGING, OPENED, RESERVED, SETTLED, WITHDRAWN
from lastiterate.ledger.chargeable import charge_of
from lastiterate.ledger.charges import costs_of
from lastiterate.ledger.costs import understated
from lastiterate.ledger.journal import Entry
from lastiterate.ledger.unit import Unit


def wrong_entries(entries: Sequence[Entry], unit: Unit) -> list[str]:
    """Why entries do not say what follows from what they say; none if they do."""
    reasons = []
    known: dict[str, Entry] = {}
    open_: set[str] = set()
    digests: dict[str, int] = {}
    for entry in entries[1:]:
        try:
            reasons += [
                f"entry {entry['n']} {why}" for why in _wrong(entry, known, open_, digests, unit)
            ]
        except READ_ERRORS as error:
            reasons.append(f"entry {entry.get('n')} cannot be read ({error!r})")
    return reasons


def _wrong(
    entry: Entry,
    known: dict[str, Entry],
    open_: set[str],
    digests: dict[str, int],
    unit: Unit,
) -> list[str]:
    reasons: list[str] = []
    what, id_ = entry["what"], entry.get("id", "")
    if what == OPENED or what not in (*CHARGING, SETTLED, WITHDRAWN):
        return [f"is {what!r}"]
    if what in CHARGING:
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
        verified_certificate(json.dumps(record))
        if charge_of(record) != known[id_]["charge"]:
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
