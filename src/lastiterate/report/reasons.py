"""Which bound answered and why; what the others would need."""

from __future__ import annotations

from dataclasses import dataclass

from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.hypotheses import CONVEX
from lastiterate.bounds.steps import gaps
from lastiterate.errors import Unmet
from lastiterate.run.batches import FullBatch
from lastiterate.run.training_run import TrainingRun

_AVERAGES = "averages over the steps in which the secretly drawn example takes part"
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
    "random-order/poisson": _AVERAGES,
}


@dataclass(frozen=True)
class Refusal:
    """One reason, and the bounds that do not apply for it."""

    bounds: tuple[str, ...]
    reason: Unmet


def why(report: PrivacyReport, delta: float) -> str:
    """One sentence: what the bound with the least epsilon uses, and the next does not."""
    best = report.bound_at(delta)
    others = [id_ for id_ in ranked(report, delta) if id_ != best and id_ in report.used]
    because = charges(best, report.run)
    if not others:
        return f"{best} is the only bound that applies: it {because}."
    second = others[0]
    if report.used[second].epsilon(delta) == report.used[best].epsilon(delta):
        return f"{best} {because}; {second} gives the same here."
    return f"{best} is the least: it {because}. Next, {second} {charges(second, report.run)}."


def ranked(report: PrivacyReport, delta: float) -> list[str]:
    """The bounds that apply: the one that answers, then by epsilon."""
    best = report.bound_at(delta)
    return sorted(report.all, key=lambda id_: (id_ != best, report.all[id_].epsilon(delta)))


def charges(id_: str, run: TrainingRun) -> str:
    """How a bound comes to its number."""
    bound = CATALOGUE[id_]
    if id_ not in _CHARGES:
        return f"gives {bound.gives}"
    one_place = isinstance(run.batches, FullBatch)
    curved = CONVEX in bound.needs and bool((gaps(run) > 0.0).all())
    return _CHARGES[id_].format(
        fading="every step shrinking what earlier ones left of an example"
        if curved
        else "later noise hiding what earlier steps left of an example",
        counts="counts on"
        if one_place
        else "charges the most exposed place in the order, counting on",
    )


def refusals(report: PrivacyReport) -> list[Refusal]:
    """Each reason once, of the bounds that are about such batches at all."""
    concerned: dict[Unmet, list[str]] = {}
    for id_, reasons in report.unmet.items():
        for reason in reasons if CATALOGUE[id_].is_about(report.run) else ():
            concerned.setdefault(reason, []).append(id_)
    return [Refusal(tuple(ids), reason) for reason, ids in concerned.items()]
