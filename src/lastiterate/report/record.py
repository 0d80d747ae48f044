"""Everything that a report tells, once: as a summary for the pages, and as a record for programs.

The keys of the record are stable.  What has no finite value is the string "inf", since JSON has
no infinity.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from lastiterate.accounting import PrivacyReport, gap
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.report.assumptions import assumptions
from lastiterate.report.reasons import Refusal, refusals, why
from lastiterate.report.rows import Row, ranked
from lastiterate.report.words import Release, release_rule


@dataclass(frozen=True)
class Summary:
    """What a report tells at one delta."""

    delta: float
    epsilon: float
    bound: str
    certainty: Certainty
    bounds: tuple[Row, ...]
    lower_bound: str | None
    lower_epsilon: float
    gap: float
    why: str
    assumptions: tuple[str, ...]
    release: Release
    refusals: tuple[Refusal, ...]


def summary(report: PrivacyReport, delta: float) -> Summary:
    """What there is to tell at this delta."""
    rows = ranked(report, delta)
    best = rows[0]
    lower = {id_: profile.epsilon(delta) for id_, profile in report.lower_bounds.items()}
    strongest = max(lower, key=lower.__getitem__, default=None)
    bound = CATALOGUE[best.id]
    return Summary(
        delta=delta,
        epsilon=best.epsilon,
        bound=best.id,
        certainty=report.certainty,
        bounds=rows,
        lower_bound=strongest,
        lower_epsilon=0.0 if strongest is None else lower[strongest],
        gap=gap(best.epsilon, max(lower.values(), default=0.0)),
        why=why(report.run, rows),
        assumptions=tuple(assumptions(bound, report.run)),
        release=release_rule(bound, report.run),
        refusals=tuple(refusals(report)),
    )


def as_record(report: PrivacyReport, *, delta: float) -> dict[str, Any]:
    """The summary as dicts, lists, strings and numbers, ready for JSON."""
    told = summary(report, delta)
    return {
        "delta": delta,
        "epsilon": _number(told.epsilon),
        "bound": told.bound,
        "certainty": told.certainty.name.lower(),
        "all": {row.id: _number(row.epsilon) for row in told.bounds},
        "bounds": [_plain(row) for row in told.bounds],
        "lower": {
            "bound": told.lower_bound,
            "epsilon": _number(told.lower_epsilon),
            "gap": _number(told.gap),
        },
        "why": told.why,
        "assumptions": list(told.assumptions),
        "release": {
            "allowed": told.release.allowed,
            "voided_by": list(told.release.voided_by),
        },
        "unmet": {id_: [str(one) for one in reasons] for id_, reasons in report.unmet.items()},
        "run": json.loads(report.run.to_json()),
    }


def as_json(report: PrivacyReport, *, delta: float) -> str:
    """The record as indented JSON."""
    return json.dumps(as_record(report, delta=delta), indent=2, allow_nan=False)


def _plain(row: Row) -> dict[str, Any]:
    bound = CATALOGUE[row.id]
    return {
        "id": row.id,
        "epsilon": _number(row.epsilon),
        "mu": _number(row.mu),
        "advantage": row.advantage,
        "ratio": _number(row.ratio),
        "used": row.used,
        "certainty": bound.certainty.name.lower(),
        "gives": bound.gives,
        "source": str(bound.source),
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"
