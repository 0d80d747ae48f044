"""A table of what leaks at least, what is estimated, and what is guaranteed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lastiterate._display import down, up
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.privacy_report import PrivacyReport

NO_GUARANTEE = "an estimate, NOT a guarantee: more may leak"
_LINEAR = "published/steinke-et-al/linear-estimate"


def three_numbers(
    report: PrivacyReport, *, delta: float, audited: Mapping[str, float] | None = None
) -> str:
    """The table: lower bounds, estimates and the guarantee, each labelled.

    `audited` are lower bounds on epsilon of the training itself, by how they were found.
    """
    rows = [(down(value), f"at least: {name}") for name, value in (audited or {}).items()]
    for id_, profile in report.lower_bounds.items():
        said = f"at least, for some training of this description: {id_}"
        rows.append((down(profile.epsilon(delta)), said))
    for id_, one in report.estimates.items():
        value = one.epsilon_estimate(delta)
        about = f"about {value:.4f}" if math.isfinite(value) else "inf"
        rows.append((about, f"{NO_GUARANTEE}: {id_}"))
    if not report.estimates:
        reasons = "; ".join(map(str, APPROXIMATIONS[_LINEAR].unmet(report.run)))
        rows.append(("-", f"no estimate: {_LINEAR} {reasons or 'is of a run alone'}"))
    rows.append((up(report.epsilon(delta)), f"at most, the guarantee: {report.bound}"))
    wide = max(len(value) for value, _ in rows)
    lines = [f"  {value:>{wide}}  {name}" for value, name in rows]
    return "\n".join([f"epsilon at delta = {delta:g}", *lines])
