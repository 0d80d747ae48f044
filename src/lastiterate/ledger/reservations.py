"""How the library itself charges what it is about to publish: a few lines where that happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger.ledger import Ledger
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.profile.selection import Tries

_details: ContextVar[str] = ContextVar("details", default="")


@contextmanager
def charges_about(details: str) -> Iterator[None]:
    """A context in which descriptions of charges end with these words, for readers of a ledger."""
    before = _details.set(details)
    try:
        yield
    finally:
        _details.reset(before)


def _about(text: str) -> str:
    return text + _details.get()


class KeptLedger:
    """The ledger of a fit, for what is charged later.

    A pickle of it is opened only then: models are also used where their ledger is not.
    """

    def __init__(self, path: Path, witness: Path | None, opened: Ledger | None = None) -> None:
        self._path, self._witness, self._opened = path, witness, opened

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path, self._witness)

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def opened(self) -> Ledger:
        """The ledger, read from its file if it is not open yet."""
        if self._opened is None:
            if not self._path.exists():
                must_be = "given where the ledger of the fit was moved: pass where it is now"
                raise InvalidParameter("ledger", must_be=must_be, found=f"nothing at {self._path}")
            self._opened = Ledger(self._path, witness=self._witness)
        return self._opened

    @property
    def is_gone(self) -> bool:
        """Whether there is no such file here."""
        return self._opened is None and not self._path.exists()


def kept(ledger: Ledger | None) -> KeptLedger | None:
    """A ledger for a fitted model to keep."""
    if ledger is None:
        return None
    path, witness = ledger.__reduce__()[1][1:]
    return KeptLedger(path.resolve(), None if witness is None else witness.resolve())


def one_ledger(*given: Ledger | KeptLedger | str | Path | None) -> Ledger | None:
    """The one that was given, here or there; not two."""
    known = [one for one in given if one is not None]
    if len(known) > 1:  # where a ledger was moved, the one that is given now takes its place
        known = [one for one in known if not (isinstance(one, KeptLedger) and one.is_gone)]
    ledgers = [_opened(one) for one in known]
    if len({one.path.resolve() for one in ledgers}) > 1:
        must_be = "one: a release is charged once; add its certificate to the other"
        raise InvalidParameter("ledger", [str(one.path) for one in ledgers], must_be=must_be)
    return ledgers[0] if ledgers else None


def _opened(one: Ledger | KeptLedger | str | Path) -> Ledger:
    if isinstance(one, KeptLedger):
        return one.opened()
    return one if isinstance(one, Ledger) else Ledger(one)


def ledgers_of(model: Any) -> list[Any]:
    """Those that a model was given: by its constructor, and by its fit."""
    return [getattr(model, name, None) for name in ("ledger", "ledger_")]


def reserve_training(
    ledger: Ledger | None, report: PrivacyReport, about: str, *, seeded: bool
) -> Reservation | None:
    """Charge a training that is about to begin, if there is a ledger."""
    if ledger is None:
        return None
    return Reservation(
        ledger, ledger.reserve(charges.training(report), _about(about), seeded=seeded)
    )


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
    return Reservation(ledger, ledger.reserve(charge, _about(about), seeded=seeded))


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
    ledger.settle(ledger.reserve(charge, _about(about), seeded=seeded))
