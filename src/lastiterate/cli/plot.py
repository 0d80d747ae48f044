"""plot: one command for each picture."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastiterate import _check
from lastiterate.cli.account import EXAMPLE, Delta, Including, check_delta
from lastiterate.cli.bounds import bound_ids
from lastiterate.cli.options import takes_run, whole_number
from lastiterate.errors import InvalidParameter
from lastiterate.run.training_run import TrainingRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[
    Path, typer.Option(help="a name, for SVG and PNG; or one that ends in .svg, .png or .pdf")
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(help="an id or family; may be repeated (default: all)", autocompletion=bound_ids),
]
Lengths = Annotated[
    list[int] | None,
    typer.Option(
        "--at",
        parser=whole_number,
        metavar="<int>",
        help="a number of steps; may be repeated",
    ),
]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    plots = typer.Typer(
        name="plot", help="Pictures, as SVG and PNG.", no_args_is_help=False, rich_markup_mode=None
    )
    for name, command, says in (
        ("epsilon-by-steps", epsilon_by_steps, "Epsilon of every bound by the number of steps."),
        ("tradeoff", tradeoff, "Trade-off curve of attackers, beside Gaussian mechanisms."),
        ("delta-by-epsilon", delta_by_epsilon, "Delta against epsilon for every bound."),
        (
            "epsilon-by-extra-steps",
            epsilon_by_extra_steps,
            "Epsilon of unlearning by the number of extra steps.",
        ),
        (
            "shift-schedule",
            shift_schedule,
            "The shift schedule: distance between two runs, and each step's shift.",
        ),
    ):
        text = f"{says}\n\nExample: lastiterate plot {name} {EXAMPLE} --out figure"
        plots.command(name, help=text)(takes_run(command))
    plots.command("accuracy-by-epsilon")(accuracy_by_epsilon)
    app.add_typer(plots)


def epsilon_by_steps(
    run: TrainingRun,
    bounds: Bounds = None,
    delta: Delta = 1e-5,
    at: Lengths = None,
    out: Out = Path("epsilon-by-steps"),
) -> None:
    from lastiterate import plot

    check_delta(delta)
    _check_lengths(at)
    _save(lambda: plot.epsilon_by_steps(run, bounds=bounds or None, delta=delta, steps=at), out)


def epsilon_by_extra_steps(
    run: TrainingRun,
    delta: Delta = 1e-5,
    at: Lengths = None,
    remove: Annotated[
        list[int] | None,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help="examples that are removed at once; may be repeated (default: 1, 10, 100)",
        ),
    ] = None,
    out: Out = Path("epsilon-by-extra-steps"),
) -> None:
    from lastiterate.unlearn.unlearning import epsilon_by_extra_steps as drawn

    check_delta(delta)
    _check_lengths(at)
    _save(lambda: drawn(run, delta=delta, examples=remove or (1, 10, 100), steps=at), out)


def tradeoff(run: TrainingRun, including: Including = None, out: Out = Path("tradeoff")) -> None:
    from lastiterate import plot
    from lastiterate.accounting import account

    _save(lambda: plot.tradeoff(account(run, including=including)), out)


def delta_by_epsilon(
    run: TrainingRun,
    including: Including = None,
    delta: Delta = 1e-5,
    out: Out = Path("delta-by-epsilon"),
) -> None:
    from lastiterate import plot
    from lastiterate.accounting import account

    check_delta(delta)
    _save(lambda: plot.delta_by_epsilon(account(run, including=including), delta=delta), out)


def shift_schedule(run: TrainingRun, out: Out = Path("shift-schedule")) -> None:
    from lastiterate import plot

    _save(lambda: plot.shift_schedule(run), out)


def accuracy_by_epsilon(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", help='JSON: {"method": {"epsilon": [accuracy of each seed]}}'
        ),
    ],
    measure: Annotated[str, typer.Option(help="what the numbers are")] = "accuracy",
    out: Out = Path("accuracy-by-epsilon"),
) -> None:
    """Plot accuracy against epsilon.

    Example: lastiterate plot accuracy-by-epsilon results.json --out figure
    """
    from lastiterate import plot

    try:
        table = json.loads(results.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidParameter("results", str(results), must_be=f"JSON ({error})") from None
    _save(lambda: plot.accuracy_by_epsilon(table, measure=measure), out)


def _check_lengths(at: list[int] | None) -> None:
    for steps in at or ():
        _check.count("at", steps, at_least=1)


def _save(draw: "Callable[[], Figure]", out: Path) -> None:
    from lastiterate.plot.style import check, save

    check(out)  # before the work, not after it
    print("written:", ", ".join(str(path) for path in save(draw(), out)))
