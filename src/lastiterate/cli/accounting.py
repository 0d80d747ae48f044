"""account, calibrate, compare, bounds."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lastiterate.accounting import account
from lastiterate.bounds.catalogue import CATALOGUE, select
from lastiterate.calibration import calibrate
from lastiterate.cli.described import takes_run
from lastiterate.report.text import as_text
from lastiterate.run.training_run import TrainingRun

Delta = Annotated[float, typer.Option(help="of (epsilon, delta)-DP")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Including = Annotated[str | None, typer.Option(help="bounds to list besides: published")]

EXAMPLE = (
    "--examples 60000 --batch-size 1500 --epochs 50 --step-size 0.05 --noise-std 0.01 "
    "--sensitivity 10 --smoothness 32.502 --strong-convexity 0.002"
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for name, command, says, example in (
        ("account", account_command, "How private is this run?", f"account {EXAMPLE}"),
        (
            "calibrate",
            calibrate_command,
            "The least noise, or the most steps, for a target.",
            f"calibrate {EXAMPLE} --epsilon 1",
        ),
        ("compare", compare_command, "Every bound as training goes on.", f"compare {EXAMPLE}"),
        (
            "bounds",
            bounds_command,
            "The catalogue of bounds.",
            "bounds --explain random-order/shuffled-once",
        ),
    ):
        text = f"{says}\n\nExample: lastiterate {example}"
        takes = command if command is bounds_command else takes_run(command)
        app.command(name, help=text)(takes)


def account_command(
    run: TrainingRun,
    delta: Delta = 1e-5,
    including: Including = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="also write a page with pictures into this file")
    ] = None,
) -> None:
    report = account(run) if including is None else account(run, including=including)
    if html is not None:
        report.to_html(html, delta=delta)
    if as_json:
        print(report.to_json(delta=delta))
        return
    print(as_text(report, delta=delta))
    if html is not None:
        print(f"\nwritten: {html}")


def calibrate_command(
    run: TrainingRun,
    epsilon: Annotated[float, typer.Option(help="the target")] = 1.0,
    delta: Delta = 1e-5,
    over: Annotated[
        str, typer.Option(help="noise_std, release_noise_std, noise (both) or steps")
    ] = "noise_std",
    as_json: AsJson = False,
) -> None:
    private = calibrate(run, epsilon=epsilon, delta=delta, over=over)
    reached = account(private).epsilon(delta)
    if as_json:
        _print_json({"run": json.loads(private.to_json()), "epsilon": reached, "delta": delta})
        return
    for name in ("noise_std", "release_noise_std", "steps"):
        print(f"{name} = {getattr(private, name)!r}")
    print(f"epsilon = {reached:.6g} at delta = {delta:g}")


def compare_command(run: TrainingRun, delta: Delta = 1e-5, as_json: AsJson = False) -> None:
    factors = (0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
    lengths = sorted({max(1, round(run.steps * factor)) for factor in factors})
    rows = {}
    for steps in lengths:
        report = account(run.replace(steps=steps))
        rows[steps] = {id_: profile.epsilon(delta) for id_, profile in report.all.items()}
    if as_json:
        _print_json({"delta": delta, "epsilon": rows})
        return
    ids = list(dict.fromkeys(id_ for row in rows.values() for id_ in row))
    table = Table("steps", *ids, title=f"epsilon at delta = {delta:g}")
    for steps, row in rows.items():
        table.add_row(f"{steps:,}", *(f"{row[id_]:.4f}" if id_ in row else "-" for id_ in ids))
    Console().print(table)


def bounds_command(
    explain: Annotated[str | None, typer.Option(help="one id, with all it needs")] = None,
) -> None:
    if explain is not None:
        for bound in select(explain):
            print(f"{bound.id} ({bound.certainty.value}): {bound.gives}\n{bound.source}")
            print(f"{(bound.evaluate.__doc__ or '').strip()}\nNeeds:")
            for one in bound.needs:
                print(f"  - {one.needs}\n    otherwise: {one.remedy}")
        return
    table = Table("id", "certainty", "gives", box=None)
    for bound in CATALOGUE.values():
        table.add_row(bound.id, bound.certainty.value, bound.gives)
    Console().print(table)


def _print_json(record: dict[str, Any]) -> None:
    print(json.dumps(record, indent=2))
