"""account, calibrate, compare.

What computes and draws is loaded when a command runs, so that --help is immediate.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import lastiterate as li
from lastiterate import _check
from lastiterate._display import up
from lastiterate._files import write_whole
from lastiterate._progress import track
from lastiterate.cli.options import Save, among, check_new, takes_run
from lastiterate.cli.terminal import line_width
from lastiterate.errors import InvalidParameter
from lastiterate.run.training_run import TrainingRun, if_one_example_is

Delta = Annotated[float, typer.Option(help="of (epsilon, delta)-DP, in (0, 1)")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Including = Annotated[
    str | None,
    typer.Option(help="further bounds to list: published", autocompletion=among(["published"])),
]
EXAMPLE = (
    "--examples 60000 --batch-size 1500 --epochs 50 --step-size 0.05 --noise-std 0.01 "
    "--sensitivity 10 --smoothness 32.502 --strong-convexity 0.002"
)
_ADJUSTABLE_NAMES = ("noise-std", "release-noise-std", "noise", "steps")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for name, command, says, example in (
        ("account", account_command, "How private is this run?", f"account {EXAMPLE}"),
        (
            "calibrate",
            calibrate_command,
            "The least noise, or the most steps, for a target epsilon.",
            f"calibrate {EXAMPLE} --epsilon 1",
        ),
        (
            "compare",
            compare_command,
            "Epsilon of every bound by the number of steps.",
            f"compare {EXAMPLE}",
        ),
    ):
        text = f"{says}\n\nExample: lastiterate {example}"
        wrapped = takes_run(
            command,
            seeks_noise=command is calibrate_command,
            saves=command is account_command,
        )
        app.command(name, help=text)(wrapped)


def account_command(
    run: TrainingRun,
    delta: Delta = 1e-5,
    epsilon: Annotated[
        float | None, typer.Option(help="also print the delta of this epsilon")
    ] = None,
    including: Including = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="also print estimates, which are no guarantees")
    ] = False,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="also write a page with pictures into this file")
    ] = None,
) -> None:
    check_delta(delta)
    if epsilon is not None:
        _check.number("epsilon", epsilon, at_least=0.0)
    if estimate and as_json:
        must_be = "without --estimate: what programs read holds guarantees alone"
        raise InvalidParameter("--json", must_be=must_be, found="both")
    if html is not None:
        from lastiterate.report.html import check_page

        check_page("html", html)
    report = li.account(run, including=including)
    if html is not None:
        report.to_html(html, delta=delta)
    if as_json:
        from lastiterate.report.summary import as_json as in_json

        print(in_json(report, delta=delta, at_epsilon=epsilon))
        return
    from lastiterate.report.text import WIDEST, as_text

    print(as_text(report, delta=delta, at_epsilon=epsilon, width=line_width(WIDEST)))
    if estimate:
        from lastiterate.report.text import three_numbers

        print(f"\n{three_numbers(report, delta=delta)}")
    if html is not None:
        print(f"\nwritten: {html}")


def calibrate_command(
    run: TrainingRun,
    epsilon: Annotated[float, typer.Option(help="the target")] = 1.0,
    delta: Delta = 1e-5,
    over: Annotated[
        str,
        typer.Option(
            help="what to change: noise-std, release-noise-std, noise (both) or steps",
            autocompletion=among(_ADJUSTABLE_NAMES),
        ),
    ] = "noise-std",
    as_json: AsJson = False,
    save: Save = None,
) -> None:
    check_delta(delta)
    over = over.replace("_", "-")
    _check.choice("over", over, among=_ADJUSTABLE_NAMES)
    if save is not None:
        check_new(save)
    _check.target_epsilon("epsilon", epsilon)
    private = li.calibrate(run, epsilon=epsilon, delta=delta, over=over.replace("-", "_"))
    reached = li.account(private).epsilon(delta)
    if save is not None:
        write_whole("save", save, private.to_toml())
    if as_json:
        record = {"run": json.loads(private.to_json()), "epsilon": reached, "delta": delta}
        _print_json({**record, "adjacency": private.adjacency})
        return
    condition = if_one_example_is(private.adjacency, private.examples_per_person)
    print(f"epsilon = {up(reached)} at delta = {delta:g} {condition}")
    for name in ("noise_std", "release_noise_std", "steps"):
        print(f"{name.replace('_', '-')} = {getattr(private, name)!r}")
    if private.clip_norm is not None:
        print(f"noise-multiplier = {private.noise_multiplier!r}")


def compare_command(run: TrainingRun, delta: Delta = 1e-5, as_json: AsJson = False) -> None:
    check_delta(delta)
    if not (run.is_constant and run.batches.any_length):
        must_be = (
            "one of any length: a schedule or a given order ends with the run; "
            "`lastiterate account` answers for it, and `plot epsilon-by-steps` up to its end"
        )
        raise InvalidParameter("run", must_be=must_be, found="such a run")
    factors = (0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
    lengths = sorted({max(1, round(run.steps * factor)) for factor in factors})
    rows = {}
    for steps in track("every length", lengths):
        report = li.account(run.replace(steps=steps))
        rows[steps] = {id_: profile.epsilon(delta) for id_, profile in report.all.items()}
    if as_json:
        _print_json({"delta": delta, "adjacency": run.adjacency, "epsilon": rows})
        return
    condition = if_one_example_is(run.adjacency, run.examples_per_person)
    print(f"epsilon at delta = {delta:g} {condition}")
    print("\n".join(_table(rows)))


def _table(rows: dict[int, dict[str, float]]) -> list[str]:
    """Lines of a table: a row for each number of steps, a column for each bound."""
    from lastiterate.report.text import WIDEST, ruled

    ids = list(dict.fromkeys(id_ for row in rows.values() for id_ in row))
    head = ["steps", *(id_.replace("/", "/\n", 1) for id_ in ids)]
    lines = [
        [f"{steps:,}", *(up(row[id_]) if id_ in row else "-" for id_ in ids)]
        for steps, row in rows.items()
    ]
    return ruled(head, lines, line_width(WIDEST))


def check_delta(delta: float) -> None:
    """Raise an error unless delta is in (0, 1)."""
    _check.number("delta", delta, above=0.0, below=1.0)


def _print_json(record: dict[str, Any]) -> None:
    from lastiterate.report.summary import with_inf_as_text

    print(json.dumps(with_inf_as_text(record), indent=2, allow_nan=False))
