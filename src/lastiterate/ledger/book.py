"""The charges that the entries of a ledger amount to, with their states and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastiterate.certificate.statements import training_digest
from lastiterate.errors import InvalidParameter
from lastiterate.ledger.charges import Charge
from lastiterate.ledger.costs import Cost
from lastiterate.ledger.journal import Entry

OPENED, RESERVED, SETTLED, WITHDRAWN, ADDED = (
    "opened",
    "reserved",
    "settled",
    "withdrawn",
    "added",
)
PUBLISHED = "published already"
CHARGING = (RESERVED, ADDED)


class Book:
    """Charges by their id, and what became of them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.charges: dict[str, Entry] = {}
        self.ends: dict[str, Entry] = {}
        self._digests: dict[str, int] = {}
        for entry in entries:
            if entry["what"] in CHARGING:
                self.charges[entry["id"]] = entry
            elif entry["what"] in (SETTLED, WITHDRAWN):
                self.ends[entry["id"]] = entry
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
        """Costs of what was published already: before all other charges, later; and of these."""
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
        """settled, withdrawn, or reserved and nothing more known."""
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
