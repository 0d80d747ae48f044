"""The `lastiterate` command.

Exit codes: 0 fine; 1 the question has no answer, and what would change that is said; 2 bad input,
one line naming the argument, the allowed range and the value; 130 interrupted.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import lastiterate
from lastiterate.cli import (
    accounting,
    auditing,
    bounds_listing,
    demo,
    describing,
    exploring,
    ledgers,
    plotting,
    predicting,
    reproducing,
    training,
    unlearning,
    verifying,
)
from lastiterate.cli.progress_bar import progress_bar
from lastiterate.errors import BudgetExceeded, LastIterateError, NoBoundApplies, UnreachableTarget

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

app = typer.Typer(
    name="lastiterate",
    help="The privacy of the model you release, not of every model you passed on the way.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lastiterate {lastiterate.__version__}")
        raise typer.Exit


@app.callback()
def _before_any_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None: ...


accounting.register(app)
bounds_listing.register(app)
describing.register(app)
exploring.register(app)
training.register(app)
predicting.register(app)
verifying.register(app)
unlearning.register(app)
ledgers.register(app)
plotting.register(app)
auditing.register(app)
reproducing.register(app)
demo.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with progress_bar():
            code = command.main(
                args=given or ["--help"], prog_name="lastiterate", standalone_mode=False
            )
    except typer.TyperException as error:
        return _say(error.format_message() + _advice(given), 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except (NoBoundApplies, UnreachableTarget, BudgetExceeded) as error:
        print(error, file=sys.stderr)
        return 1
    except (LastIterateError, OSError, ValueError) as error:
        return _say(str(error), 2)
    if code == _INTERRUPTED:
        return _say("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _advice(given: Sequence[str]) -> str:
    """For those who look for a way to describe another optimiser."""
    names = {word.split("=")[0] for word in given}
    if not names & {"--momentum", "--optimizer", "--optimiser", "--adam"}:
        return ""
    return (
        ". Of momentum, Adam and the like every iterate is charged, as others do: leave such "
        "options and --step-size out. Less is proved for plain steps only"
    )


def _say(message: str, code: int) -> int:
    print(f"lastiterate: {' '.join(message.split())}", file=sys.stderr)
    return code


def run() -> None:
    """The console script."""
    sys.exit(main())
