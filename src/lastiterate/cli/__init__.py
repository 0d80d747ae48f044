"""The `lastiterate` command.

Exit codes: 0 success; 1 no answer exists, with a hint on what would change that; 2 bad input, with
one line that names the option, the allowed range and the value; 3 a file of another version, with
the one to install; 4 weights beside a certificate that were not checked; 130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

import lastiterate
from lastiterate._display import printable
from lastiterate.cli.terminal import OTHER_VERSION, progress_bar
from lastiterate.errors import (
    BudgetExceeded,
    InvalidParameter,
    LastIterateError,
    NoBoundApplies,
    OtherVersion,
    UnreachableTarget,
)

# What every error of usage derives from; it has no public name before typer 0.27.
_UsageError: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

# Options that people repeat to name several things.
_ONCE = ("--id", "--class-prior", "--classes", "--rows")

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


def _with_commands() -> typer.Typer:
    """The application with all of its commands."""
    app = typer.Typer(
        name="lastiterate",
        help="The privacy of the model you release, not of every model you passed on the way.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_before_any_command)
    for module in _MODULES:
        import_module(f"lastiterate.cli.{module}").register(app)
    return app


app = _with_commands()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    for option in _ONCE:
        if sum(word == option or word.startswith(f"{option}=") for word in given) > 1:
            return _print_error(f"{option} must be given once; the last one alone would count", 2)
    try:
        with progress_bar():
            code = command.main(
                args=given or ["--help"], prog_name="lastiterate", standalone_mode=False
            )
    except _UsageError as error:
        return _print_error(error.format_message() + _commands_text(error) + _advice(given), 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except OtherVersion as error:
        return _print_error(str(error), OTHER_VERSION)
    except (NoBoundApplies, UnreachableTarget, BudgetExceeded) as error:
        print("\n".join(map(printable, str(error).split("\n"))), file=sys.stderr)
        return 1
    except (FileNotFoundError, PermissionError) as error:
        if error.filename is None:
            return _print_error(str(error), 2)
        return _print_error(
            f"{error.filename}: {error.strerror}; check the path and its permissions", 2
        )
    except InvalidParameter as error:
        return _print_error(_with_option(error, _options(command, given)), 2)
    except (LastIterateError, OSError, ValueError, ArithmeticError, MemoryError) as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return _print_error(_memory_text(_options(command, given), given), 2)
        return _print_error(str(error), 2)
    if code == _INTERRUPTED:
        return _print_error("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _options(command: Any, given: Sequence[str]) -> dict[str, str]:
    """The options and arguments of the command that was given, by their Python names."""
    for word in given:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return {
        one.name: one.opts[0] if one.param_type_name == "option" else one.metavar
        for one in command.params
    }


def _with_option(error: InvalidParameter, options: Mapping[str, str]) -> str:
    """The message of an error, with the option that was typed in place of the Python argument."""
    name = options.get(error.name)
    if name is None:
        return str(error)
    return str(InvalidParameter(name, error.value, must_be=error.must_be, found=error.found))


def _memory_text(options: Mapping[str, str], given: Sequence[str]) -> str:
    """The remedy where memory ends, by the options that there are and those that were given."""
    mapped = options.get("mapped")
    if mapped is None:
        return "what is computed must fit into memory: let this process have more, or ask for less"
    if any(word.split("=")[0] == mapped for word in given):
        return (
            f"blocks of rows must fit into memory, also with {mapped}: let this process have more"
        )
    return (
        "all rows and a second copy of them must fit into memory: let this process have more, or "
        f"add {mapped} FOLDER, which keeps the rows in scratch files there"
    )


def _commands_text(error: Any) -> str:
    """The commands that there are, where one of a group is missing or unknown."""
    group: Any = getattr(getattr(error, "ctx", None), "command", None)
    commands = getattr(group, "commands", {})
    if not commands or "command" not in error.format_message():
        return ""
    return f" {group.name} takes one of {', '.join(commands)}"


def _advice(given: Sequence[str]) -> str:
    """A sentence for users who pass options of another optimiser; else an empty text."""
    names = {word.split("=")[0] for word in given}
    if not names & {"--optimizer", "--optimiser", "--adam"}:
        return ""
    return (
        ". Adam and other optimisers are charged for every iterate, as by standard accountants: "
        "leave out these options and --step-size. The bounds for the last iterate alone are for "
        "SGD, with --momentum or without"
    )


def _print_error(message: str, code: int) -> int:
    print(f"lastiterate: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


def run() -> None:
    """The console script."""
    sys.exit(main())
