"""account, calibrate, compare, bounds.

What computes and draws is loaded when a command runs, so that --help is immediate.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

import lastiterate as li
from lastiterate._digits import up
from lastiterate._progress import told
from lastiterate.cli.columns import epsilon_table
from lastiterate.cli.run_options import takes_run
from lastiterate.errors import InvalidParameter
from lastiterate.run.training_run import TrainingRun

Delta = Annotated[float, typer.Option(help="of (epsilon, delta)-DP")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Including = Annotated[str | None, typer.Option(help="bounds to list besides: published")]
_ROLE = re.compile(r":math:`([^`]+)`")

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
        if command is not bounds_command:
            command = takes_run(command, seeks_noise=command is calibrate_command)
        app.command(name, help=text)(command)


def account_command(
    run: TrainingRun,
    delta: Delta = 1e-5,
    including: Including = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="also write a page with pictures into this file")
    ] = None,
) -> None:
    report = li.account(run, including=including)
    if html is not None:
        report.to_html(html, delta=delta)
    if as_json:
        print(report.to_json(delta=delta))
        return
    from lastiterate.report.text import as_text

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
    private = li.calibrate(run, epsilon=epsilon, delta=delta, over=over)
    reached = li.account(private).epsilon(delta)
    if as_json:
        _print_json({"run": json.loads(private.to_json()), "epsilon": reached, "delta": delta})
        return
    for name in ("noise_std", "release_noise_std", "steps"):
        print(f"{name} = {getattr(private, name)!r}")
    if private.clip_norm is not None:
        print(f"noise_multiplier = {private.noise_multiplier!r}")
    print(f"epsilon = {up(reached)} at delta = {delta:g}")


def compare_command(run: TrainingRun, delta: Delta = 1e-5, as_json: AsJson = False) -> None:
    factors = (0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
    lengths = sorted({max(1, round(run.steps * factor)) for factor in factors})
    rows = {}
    for steps in told("every length", lengths):
        report = li.account(run.replace(steps=steps))
        rows[steps] = {id_: profile.epsilon(delta) for id_, profile in report.all.items()}
    if as_json:
        _print_json({"delta": delta, "epsilon": rows})
        return
    print(f"epsilon at delta = {delta:g}")
    print(epsilon_table("steps", {f"{steps:,}": row for steps, row in rows.items()}))


def bounds_command(
    explain: Annotated[str | None, typer.Option(help="one id, with all it needs")] = None,
) -> None:
    from lastiterate.bounds.catalogue import select

    if explain is not None:
        try:
            explained = select(explain)
        except InvalidParameter as error:
            raise InvalidParameter("explain", explain, must_be=error.must_be) from None
        for bound in explained:
            print(f"{bound.id}: {bound.gives}\n{bound.certainty.value}\n{bound.source}\n")
            statement = _ROLE.sub(r"\1", inspect.cleandoc(bound.evaluate.__doc__ or ""))
            print(f"{statement}\n\nNeeds:")
            for one in bound.needs:
                print(f"  - {one.needs}\n    otherwise: {one.remedy}")
        return
    for bound in li.CATALOGUE.values():
        print(f"{bound.id}\n    {bound.gives}")
        if bound.certainty.name != "UPPER":
            print(f"    ({bound.certainty.value})")


def _print_json(record: dict[str, Any]) -> None:
    from lastiterate.report.summary import with_inf_as_text

    print(json.dumps(with_inf_as_text(record), indent=2, allow_nan=False))
