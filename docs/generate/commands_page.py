"""The commands, as their own --help describes them, and what their examples print."""

import contextlib
import copy
import inspect
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from lastiterate.cli import app, main
from lastiterate.cli.options import run_from_flags

_RUN = frozenset(inspect.signature(run_from_flags).parameters)
_HEAD = """# Commands

Every `--help`, and what its example prints; made when these pages are built.

Exit codes: 0 is fine; 1 means that the question has no answer, and what would change that is said;
2 is bad input, in one line that names the argument, the allowed range and the value. Shell
completion of commands, options and their values: `lastiterate --install-completion`.

"""
_DESCRIBING = """## Describing a run

`account`, `calibrate`, `compare` and most of `plot` take a run: by the flags below, by a file, or
by a file that flags change. DP-SGD libraries' numbers (`--clip-norm`, `--noise-multiplier`) are
taken for one example that is left out, a `--sensitivity` for one that is replaced; the first line
of every answer says which, and what was assumed is said on stderr.

"""
_FILE = """
A file holds the same words, `step_size` for `--step-size` and `convex = false` for `--non-convex`,
as TOML or JSON; [DP-SGD pipelines](dp-sgd.md#a-run-in-a-file) has one. `--save run.toml` writes it.
What `account --json` prints and what `run.to_toml()` writes are read as well.

"""
_EXAMPLE = re.compile(r"Example: (lastiterate .*?)(?:\n\n|\Z)", re.DOTALL)
_SHOWN = ("account", "calibrate", "compare")  # they are quick, and need no files


def text() -> str:
    """The page, as Markdown."""
    root = typer.main.get_command(app)
    listed = list(commands(root))
    account = dict(listed)["account",]
    described = _HEAD + _DESCRIBING + _block(_options(account, _RUN)) + _FILE
    return described + "\n".join(_entry(*one) for one in listed)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def _entry(path: tuple[str, ...], command: Any) -> str:
    entry = f"## {' '.join(path)}\n\n{_block(_help(path, command))}"
    example = _EXAMPLE.search(command.help or "")
    if example is None or path[0] not in _SHOWN:
        return entry
    words = example[1].split()
    return f"{entry}\n```sh\n{_wrapped(example[1])}\n```\n\n{_block(printed(words[1:]))}"


def _help(path: tuple[str, ...], command: Any) -> str:
    """As --help prints it, but for the flags that describe a run, which are on the page once."""
    if not _takes_run(command):
        return printed([*path, "--help"])
    short = _with(command, [one for one in command.params if one.name not in _RUN])
    text = short.get_help(short.context_class(short, info_name=f"lastiterate {' '.join(path)}"))
    return text.replace("[OPTIONS]", "[RUN] [OPTIONS]", 1)


def _takes_run(command: Any) -> bool:
    return {one.name for one in command.params} >= _RUN


def _options(command: Any, names: frozenset[str]) -> str:
    """The part of --help about these parameters."""
    few = _with(command, [one for one in command.params if one.name in names])
    few.add_help_option = False
    text = few.get_help(few.context_class(few, info_name="lastiterate"))
    return str(text[text.index("Arguments:") :])


def _with(command: Any, params: list[Any]) -> Any:
    changed = copy.copy(command)
    changed.params = params
    return changed


def printed(arguments: Sequence[str]) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(arguments)
    if code != 0:
        raise RuntimeError(f"lastiterate {' '.join(arguments)}: exit code {code}")
    return out.getvalue()


def _wrapped(command: str) -> str:
    lines = textwrap.wrap(" ".join(command.split()), 88, break_on_hyphens=False)
    return " \\\n    ".join(lines)


def _block(output: str) -> str:
    return f"```text\n{output.strip()}\n```\n"
