"""How the library itself charges what it is about to publish: a few lines where that happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger.ledger import Ledger
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.profile.selection import Tries


def one_ledger(*given: Ledger | str | Path | None) -> Ledger | None:
    """The one that was given, here or there; not two."""
    ledgers = [one if isinstance(one, Ledger) else Ledger(one) for one in given if one is not None]
    if len({one.path.resolve() for one in ledgers}) > 1:
        must_be = "one: a release is charged once; add its certificate to the other"
        raise InvalidParameter("ledger", [str(one.path) for one in ledgers], must_be=must_be)
    return ledgers[0] if ledgers else None


def reserve_training(
    ledger: Ledger | None, report: PrivacyReport, about: str, *, seeded: bool
) -> Reservation | None:
    """Charge a training that is about to begin, if there is a ledger."""
    if ledger is None:
        return None
    return Reservation(ledger, ledger.reserve(charges.training(report), about, seeded=seeded))


def reserve_selection(
    ledger: Ledger | None,
    tries: Tries,
    candidates: Sequence[Mapping[str, Any]],
    roundings: Sequence[Rounding | None],
    about: str,
    *,
    seeded: bool,
) -> Reservation | None:
    """Charge the best of several tries that are about to be made, if there is a ledger."""
    if ledger is None:
        return None
    charge = charges.selection(tries, candidates, roundings)
    return Reservation(ledger, ledger.reserve(charge, about, seeded=seeded))


class Reservation:
    """A charge in a ledger that is still to be settled."""

    def __init__(self, ledger: Ledger, id_: str) -> None:
        self.ledger, self.id = ledger, id_

    def settle(self, certificate: str | None = None) -> None:
        """Once it was made, and before anybody sees it."""
        self.ledger.settle(self.id, certificate)


def charge_statistic(
    ledger: Ledger | None,
    release: Release,
    about: str,
    *,
    examples_per_person: int,
    rounding: Rounding,
    seeded: bool,
) -> None:
    """Charge a statistic before it is published, if there is a ledger."""
    if ledger is None:
        return
    charge = charges.statistic(
        release, adjacency="replace", examples_per_person=examples_per_person, rounding=rounding
    )
    ledger.settle(ledger.reserve(charge, about, seeded=seeded))
