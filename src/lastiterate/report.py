"""A report as a table that a person can read."""

import math
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lastiterate.accounting import PrivacyReport

_DELTA = 1e-5
_WIDTH = 100


def as_text(report: PrivacyReport, *, delta: float = _DELTA) -> str:
    """The certified bounds, best first, and why the others do not apply."""
    run = report.run
    out = StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None, highlight=False)
    console.print(
        f"{run.steps:,} steps of noisy gradient descent, {run.batches!r}\n"
        f"releases the {run.releases.replace('-', ' ')}; one example changed by "
        f"{run.adjacency!r}",
        markup=False,
    )
    console.print(_bounds(report, delta))
    if report.unmet:
        console.print("Not applicable:", markup=False)
    for id_, reasons in report.unmet.items():
        for reason in reasons:
            console.print(f"  {id_}: needs {reason.needs}; found {reason.found}.", markup=False)
            console.print(f"    -> {reason.remedy}", markup=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _bounds(report: PrivacyReport, delta: float) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("certified bound")
    for heading in (f"epsilon at delta {delta:g}", "mu (GDP)", "attacker's advantage"):
        table.add_column(heading, justify="right")
    best = report.bound_at(delta)
    for id_ in sorted(report.all, key=lambda key: (key != best, report.all[key].epsilon(delta))):
        profile = report.all[id_]
        table.add_row(
            f"{id_}  <- used" if id_ == best else id_,
            _up(profile.epsilon(delta)),
            _up(profile.gdp()),
            _up(profile.advantage()),
        )
    return table


def _up(value: float) -> str:
    """Four decimals, rounded up: what is printed is certified too."""
    return f"{value:.4g}" if value > 1e12 else f"{math.ceil(value * 1e4) / 1e4:.4f}"
