"""Which bound answered and why; what the others would need."""

from __future__ import annotations

from dataclasses import dataclass

from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.bound import Bound
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import CONVEX
from lastiterate.bounds.quantities import gaps
from lastiterate.errors import Unmet
from lastiterate.run.training_run import TrainingRun


@dataclass(frozen=True)
class Refusal:
    """One reason, and the bounds that do not apply for it."""

    bounds: tuple[str, ...]
    reason: Unmet


def why(run: TrainingRun, best: Bound, second: Bound | None, *, equal: bool) -> str:
    """One sentence: what the bound with the least epsilon uses, and the next does not."""
    because = charges(best, run)
    if second is None:
        return f"{best.id} is the only bound that applies: it {because}."
    if equal:
        return f"{best.id} {because}; {second.id} gives the same here."
    return f"{best.id} is the least: it {because}. Next, {second.id} {charges(second, run)}."


def charges(bound: Bound, run: TrainingRun) -> str:
    """How a bound comes to its number."""
    if not bound.charges:
        return f"gives {bound.gives}"
    curved = CONVEX in bound.needs and bool((gaps(run) > 0.0).all())
    return bound.charges.format(
        fading="every step shrinking what earlier ones left of an example"
        if curved
        else "later noise hiding what earlier steps left of an example",
        counts="charges the most exposed place in the order, counting on"
        if run.batches.ordered
        else "counts on",
    )


def refusals(report: PrivacyReport) -> list[Refusal]:
    """Each reason once, of the bounds that are about such batches at all."""
    concerned: dict[Unmet, list[str]] = {}
    for id_, reasons in report.unmet.items():
        for reason in reasons if RECORDS[id_].is_about(report.run) else ():
            concerned.setdefault(reason, []).append(id_)
    return [Refusal(tuple(ids), reason) for reason, ids in concerned.items()]
