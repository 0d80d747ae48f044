"""The commands, as their own --help describes them, and what their examples print."""

import contextlib
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from lastiterate.cli import app, main

_HEAD = """# Commands

Every `--help`, and what its example prints; made when these pages are built.

Exit codes: 0 is fine; 1 means that the question has no answer, and what would change that is said;
2 is bad input, in one line that names the argument, the allowed range and the value. Shell
completion: `lastiterate --install-completion`.

"""
_EXAMPLE = re.compile(r"Example: (lastiterate .*?)(?:\n\n|\Z)", re.DOTALL)
_SHOWN = ("account", "calibrate", "compare")  # they are quick, and need no files


def text() -> str:
    """The page, as Markdown."""
    root = typer.main.get_command(app)
    return _HEAD + "\n".join(_entry(*one) for one in commands(root))


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def _entry(path: tuple[str, ...], command: Any) -> str:
    entry = f"## {' '.join(path)}\n\n{_block(printed([*path, '--help']))}"
    example = _EXAMPLE.search(command.help or "")
    if example is None or path[0] not in _SHOWN:
        return entry
    words = example[1].split()
    return f"{entry}\n```sh\n{_wrapped(example[1])}\n```\n\n{_block(printed(words[1:]))}"


def printed(arguments: Sequence[str]) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(arguments)
    if code != 0:
        raise RuntimeError(f"lastiterate {' '.join(arguments)}: exit code {code}")
    return out.getvalue()


def _wrapped(command: str) -> str:
    lines = textwrap.wrap(" ".join(command.split()), 88, break_on_hyphens=False)
    return " \\\n    ".join(lines)


def _block(output: str) -> str:
    return f"```text\n{output.strip()}\n```\n"
