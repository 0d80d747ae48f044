"""The `lastiterate` command.

Exit codes: 0 fine; 1 the question has no answer, and what would change that is said; 2 bad input,
one line naming the argument, the allowed range and the value; 130 interrupted.
"""

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

import lastiterate
from lastiterate.cli.lazy_numpy import load_later
from lastiterate.cli.progress_bar import progress_bar
from lastiterate.cli.startup import PlainGroup
from lastiterate.errors import BudgetExceeded, LastIterateError, NoBoundApplies, UnreachableTarget

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_MODULES = (
    "account",
    "bounds",
    "schema",
    "explore",
    "train",
    "predict",
    "verify",
    "unlearn",
    "ledger",
    "plot",
    "audit",
    "reproduce",
    "demo",
)
# Asked most often: of these alone nothing else is loaded.
_MODULE_OF = dict.fromkeys(("account", "calibrate", "compare"), "account")


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'lastiterate.cli' has no attribute {name!r}")
    globals()["app"] = _with_commands_of(_MODULES)
    return globals()["app"]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lastiterate {lastiterate.__version__}")
        raise typer.Exit


def _before_any_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None: ...


def _with_commands_of(modules: Sequence[str]) -> typer.Typer:
    found = typer.Typer(
        name="lastiterate",
        cls=PlainGroup,
        help="The privacy of the model you release, not of every model you passed on the way.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    found.callback()(_before_any_command)
    for module in modules:
        import_module(f"lastiterate.cli.commands.{module}").register(found)
    return found


@cache
def _all_commands_or(name: str | None) -> Any:
    if name is None:
        return _in_capitals(typer.main.get_command(_with_commands_of(_MODULES)))
    alone = _with_commands_of([_MODULE_OF[name]])
    alone.registered_commands = [one for one in alone.registered_commands if one.name == name]
    return _in_capitals(typer.main.get_command(alone))


def _in_capitals(command: Any) -> Any:
    """The command, whose usage has its arguments as most commands do: DATA, not {data}."""
    for one in command.params:
        if one.param_type_name == "argument" and one.metavar is None:
            one.metavar = one.name.upper()
    pieces = command.collect_usage_pieces
    command.collect_usage_pieces = lambda context: [one.strip("{}") for one in pieces(context)]
    for inner in getattr(command, "commands", {}).values():
        _in_capitals(inner)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = _all_commands_or(given[0] if given and given[0] in _MODULE_OF else None)
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
    except (FileNotFoundError, PermissionError) as error:
        if error.filename is None:
            return _say(str(error), 2)
        return _say(f"{error.filename}: {error.strerror}; check the path and its permissions", 2)
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
    load_later()
    sys.exit(main())
