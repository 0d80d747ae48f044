"""Runs as the page's controls describe them, and as Python, a command line and TOML."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.explore import model_kinds
from lastiterate.run.batch_rules.rules import RULES
from lastiterate.run.description import NAMES, Description
from lastiterate.run.domain import Ball
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.serialise import words_to_toml
from lastiterate.run.training_run import TrainingRun

_NOT_ON_THE_PAGE = ("holder", "sample_rate", "domain")


def description(words: object) -> Description:
    """The description of a run that the page's entries give."""
    if not isinstance(words, Mapping):
        raise InvalidType("run", words, must_be="a table of names and values")
    return Description.from_words(model_kinds.constants(words))


def run_from_page(words: object) -> TrainingRun:
    """The run that the page's entries describe."""
    return description(words).run()


def page_words(run: TrainingRun | Description) -> dict[str, Any]:
    """The page's entries for a run; `InvalidParameter` where its controls cannot express it."""
    said = Description.of(run) if isinstance(run, TrainingRun) else run
    whole = said.run()
    if whole.batches.name not in NAMES or not whole.is_constant or said.holder is not None:
        must_be = "one with one step size, one noise and batches that sizes describe"
        raise InvalidParameter("run", must_be=must_be, found="another, which the page cannot show")
    require_plain_steps(whole, "the page")
    usual = Description()
    words = {
        entry.name: getattr(said, entry.name)
        for entry in dataclasses.fields(said)
        if entry.name not in _NOT_ON_THE_PAGE
        and getattr(said, entry.name) != getattr(usual, entry.name)
    }
    words |= {"batches": whole.batches.name, "examples": whole.batches.examples}
    if words.pop("steps", None) is not None:
        words["epochs"] = whole.steps / whole.batches.steps_per_pass
    if RULES[whole.batches.name].ordered or "batch_size" in words:
        words["batch_size"] = whole.batches.batch_size
    if isinstance(whole.domain, Ball):
        words["diameter"] = whole.domain.diameter
    words |= {"adjacency": whole.adjacency, "releases": whole.releases}
    if not said.convex:
        return words | {"model": model_kinds.UNKNOWN.name}
    return words | {"model": model_kinds.STATED.name}


_OBJECTS = ("loss", "batches", "domain")


def as_code(said: Description, *, delta: float) -> dict[str, str]:
    """Python, a command line and TOML, each of which gives the same run."""
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
    """A constructor call without the arguments that equal their defaults."""
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
