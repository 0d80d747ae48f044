"""A ledger as a person reads it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lastiterate._display import down, printable, up
from lastiterate.ledger.entries import RESERVED, LedgerState
from lastiterate.ledger.unit import Unit, covered_by

if TYPE_CHECKING:
    from lastiterate.ledger.ledger import Ledger

_IN_ADVANCE = (
    "composed by privacy losses: for releases whose costs were fixed without a look at results"
)
_ADAPTIVE = "composed by mu: also for releases chosen by looking at earlier ones"
_MOST = "the most that could have been spent: what is spent depends on results, and is no guarantee"


def as_text(ledger: Ledger) -> str:
    """Text that lists all charges, their composition, and what is left."""
    return "\n".join(map(printable, _lines(ledger)))


def _lines(ledger: Ledger) -> Iterator[str]:
    entries = ledger.entries()
    state = LedgerState(entries)
    spent = ledger.spent().epsilon(ledger.delta)
    yield (
        f"{os.fspath(ledger.path)}: epsilon {ledger.epsilon:g} at delta {ledger.delta:g}, "
        f"{ledger.unit}"
    )
    yield f"spent: {up(spent)}, {_ADAPTIVE if ledger.adaptive else _IN_ADVANCE}"
    if ledger.adaptive:
        yield f"proved: {up(ledger.budget.guaranteed_epsilon(state))}, {_MOST}"
    if spent > ledger.epsilon:
        yield "overspent: something that was published already was added"
    else:
        yield f"left: a release of epsilon {down(ledger.largest_epsilon())}"
    if ledger.allow_seeded:
        yield "for tests only: trainings with a seed are charged as if nobody knew it"
    yield ""
    yield f"{'entry':>5}  {'when (UTC)':16}  {'epsilon alone':>13}  {'state':9}  about"
    for id_, entry in state.charges.items():
        alone = math.inf if entry["alone"] is None else entry["alone"]
        when = entry["time"][:16].replace("T", " ")
        about = entry["about"] or entry["charge"]["kind"]
        about += _counted_for(covered_by(entry["charge"]), ledger.unit)
        yield f"{entry['n']:5}  {when}  {up(alone):>13}  {state.state(id_):9}  {about}"
        if state.state(id_) == RESERVED:
            yield f"{'':5}  under way, or died half-way; id {id_}"
    yield ""
    yield f"head: {entries[-1]['hash']} ({len(entries)} entries)"


def _counted_for(covered: int, unit: Unit) -> str:
    """Note on the conversion of a charge for fewer examples than the ledger counts, else empty."""
    if covered == unit.examples_per_person:
        return ""
    few = "one example" if covered == 1 else f"{covered:,} examples of a person"
    return f" (for {few}; counted for {unit.examples_per_person:,})"
