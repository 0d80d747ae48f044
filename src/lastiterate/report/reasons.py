"""Which bound answered and why; what the others would need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.conditions import CONVEX
from lastiterate.bounds.quantities import gaps
from lastiterate.errors import Unmet
from lastiterate.report.rows import Row
from lastiterate.run.training_run import TrainingRun

_AVERAGES = "averages over the steps in which the secretly drawn example takes part"
_HIDES = f"{_AVERAGES}, and keeps the last of them hidden"
_CHARGES = {
    "composition/fixed-order": (
        "charges every step that sees the example, as if all iterates were published"
    ),
    "composition/sampled": "charges every iterate, less for the example's chance to be left out",
    "fixed-order/contractive": "{counts} {fading}",
    "fixed-order/bounded-domain": (
        "{counts} {fading}, and on two runs never being further apart than the diameter"
    ),
    "fixed-order/non-convex": (
        "{counts} how little a step can drive two runs apart, and later noise hiding the rest"
    ),
    "random-order/shuffled-once": "averages over the example's secret place in the order",
    "random-order/shuffled-each-epoch": (
        "averages over the example's secret place in the last epoch"
    ),
    "random-order/sampled": _AVERAGES,
    "random-order/sampled-hidden-end": _HIDES,
    "random-order/poisson": _AVERAGES,
    "random-order/poisson-hidden-end": _HIDES,
}


@dataclass(frozen=True)
class Refusal:
    """One reason, and the bounds that do not apply for it."""

    bounds: tuple[str, ...]
    reason: Unmet


def why(run: TrainingRun, rows: Sequence[Row]) -> str:
    """One sentence: what the bound with the least epsilon uses, and the next does not."""
    best, *others = (row for row in rows if row.used)
    because = charges(best.id, run)
    if not others:
        return f"{best.id} is the only bound that applies: it {because}."
    second = others[0]
    if second.epsilon == best.epsilon:
        return f"{best.id} {because}; {second.id} gives the same here."
    return f"{best.id} is the least: it {because}. Next, {second.id} {charges(second.id, run)}."


def charges(id_: str, run: TrainingRun) -> str:
    """How a bound comes to its number."""
    bound = CATALOGUE[id_]
    if id_ not in _CHARGES:
        return f"gives {bound.gives}"
    curved = CONVEX in bound.needs and bool((gaps(run) > 0.0).all())
    return _CHARGES[id_].format(
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
        for reason in reasons if CATALOGUE[id_].is_about(report.run) else ():
            concerned.setdefault(reason, []).append(id_)
    return [Refusal(tuple(ids), reason) for reason, ids in concerned.items()]
