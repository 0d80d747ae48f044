"""A report as a table that a person can read."""

import math
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.errors import Unmet
from lastiterate.run.training_run import TrainingRun

_DELTA = 1e-5
_WIDTH = 100
_RELEASED = {
    "last-iterate": "the last iterate",
    "last-iterate-and-order": "the last iterate and the order of the batches",
    "every-iterate": "every iterate",
}


def as_text(report: PrivacyReport, *, delta: float = _DELTA) -> str:
    """The certified bounds, best first, and why the others do not apply."""
    out = StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None, highlight=False)
    console.print(_headline(report.run), markup=False)
    console.print(_bounds(report, delta))
    if len(report.used) < len(report.all):
        console.print("* as published: the proof has a gap, so it is listed and not used", "\n")
    reasons = _reasons(report)
    if reasons.row_count:
        console.print("What other bounds for such batches would need:")
        console.print(reasons)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _headline(run: TrainingRun) -> str:
    changed = "replaced by another" if run.adjacency == "replace" else "left out (zeroed)"
    return (
        f"{run.steps:,} steps of noisy gradient descent, {_batches(run)}\n"
        f"Released: {_RELEASED[run.releases]}. Protected: one example being {changed}."
    )


def _batches(run: TrainingRun) -> str:
    rule, batches = type(run.batches).__name__, run.batches
    return f"{rule} batches of {batches.batch_size:,} out of {batches.examples:,} examples"


def _reasons(report: PrivacyReport) -> Table:
    """Each reason once, with the bounds it concerns."""
    concerned: dict[Unmet, list[str]] = {}
    for id_, reasons in report.unmet.items():
        for reason in reasons if CATALOGUE[id_].is_about(report.run) else ():
            concerned.setdefault(reason, []).append(id_)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for reason, ids in concerned.items():
        needs = f"{reason.needs}; found {reason.found}"
        table.add_row(Text("\n".join(ids)), Text(f"{needs}\n-> {reason.remedy}"))
    return table


def _bounds(report: PrivacyReport, delta: float) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    certified = report.certainty is Certainty.UPPER
    table.add_column("certified bound" if certified else "bound as published, not certified")
    for heading in (f"epsilon at delta {delta:g}", "mu (GDP)", "advantage"):
        table.add_column(heading, justify="right")
    best = report.bound_at(delta)
    for id_ in sorted(report.all, key=lambda key: (key != best, report.all[key].epsilon(delta))):
        profile = report.all[id_]
        listed = id_ if id_ in report.used else f"{id_} *"
        table.add_row(
            f"{id_}  <- used" if id_ == best else listed,
            _up(profile.epsilon(delta)),
            _up(profile.gdp()),
            _up(profile.advantage()),
        )
    return table


def _up(value: float) -> str:
    """Four decimals, rounded up: what is printed is certified too."""
    return f"{value:.4g}" if value > 1e12 else f"{math.ceil(value * 1e4) / 1e4:.4f}"
