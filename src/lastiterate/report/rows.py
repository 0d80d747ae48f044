"""The bounds that apply to a run, at one delta, each evaluated once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastiterate import _check
from lastiterate.accounting import PrivacyReport


@dataclass(frozen=True)
class Row:
    """One bound that applies."""

    id: str
    epsilon: float
    mu: float
    advantage: float
    ratio: float  # of its epsilon to that of the bound that answers
    used: bool


def ranked(report: PrivacyReport, delta: float) -> tuple[Row, ...]:
    """The bound that answers, as `report.bound_at` chooses it, then the others by epsilon."""
    _check.number("delta", delta, at_least=0.0, at_most=1.0)
    epsilons = {id_: profile.epsilon(delta) for id_, profile in report.all.items()}
    best = min(report.used, key=lambda id_: (epsilons[id_], report.used[id_].gdp()))
    order = sorted(report.all, key=lambda id_: (id_ != best, epsilons[id_]))
    return tuple(
        Row(
            id=id_,
            epsilon=epsilons[id_],
            mu=report.all[id_].gdp(),
            advantage=report.all[id_].advantage(),
            ratio=_ratio(epsilons[id_], epsilons[best]),
            used=id_ in report.used,
        )
        for id_ in order
    )


def _ratio(epsilon: float, least: float) -> float:
    if epsilon == least:
        return 1.0
    return epsilon / least if least > 0.0 else math.inf
