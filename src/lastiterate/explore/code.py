"""The run as Python, as a command line and as TOML, to take away."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from lastiterate.run.description import Description
from lastiterate.run.serialise import words_to_toml
from lastiterate.run.training_run import TrainingRun

_OBJECTS = ("loss", "batches", "domain")


def as_code(said: Description, *, delta: float) -> dict[str, str]:
    """All three, each of which gives the same run."""
    run, words = said.run(), _words(said)
    return {
        "python": _python(run, delta),
        "command": _command(words, delta),
        "toml": words_to_toml(words),
    }


def _words(said: Description) -> dict[str, Any]:
    """Arguments that differ from their defaults, and always the batches and the adjacency."""
    usual, run = Description(), said.run()
    words = {
        entry.name: getattr(said, entry.name)
        for entry in dataclasses.fields(said)
        if getattr(said, entry.name) != getattr(usual, entry.name)
    }
    return words | {"batches": run.batches.name, "adjacency": run.adjacency}


def _python(run: TrainingRun, delta: float) -> str:
    lines = ["import lastiterate as li", "", "run = li.TrainingRun("]
    for entry in dataclasses.fields(run):
        value = getattr(run, entry.name)
        if value != _default(entry):
            said = f"li.{_short(value)}" if entry.name in _OBJECTS else repr(value)
            lines.append(f"    {entry.name}={said},")
    lines += [")", f"print(li.account(run).epsilon({delta!r}))"]
    return "\n".join(lines) + "\n"


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default


def _short(value: Any) -> str:
    """A call that makes it, without arguments that say what is so anyway."""
    said = [
        f"{entry.name}={getattr(value, entry.name)!r}"
        for entry in dataclasses.fields(value)
        if entry.init and getattr(value, entry.name) != entry.default
    ]
    return f"{type(value).__name__}({', '.join(said)})"


def _command(words: dict[str, Any], delta: float) -> str:
    flags = ["lastiterate", "account"]
    for name, value in words.items():
        if name == "convex":
            flags.append("--non-convex")
        else:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*flags, "--delta", repr(delta)])
