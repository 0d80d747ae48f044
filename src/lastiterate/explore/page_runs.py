"""A run in the words of the page, which are those of a run file and the kind of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.explore import model_kinds
from lastiterate.run.batch_rules.rules import RULES
from lastiterate.run.description import NAMES, Description
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_NOT_ON_THE_PAGE = ("holder", "sample_rate", "domain")


def description(words: object) -> Description:
    """The description of a run that the page's entries give."""
    if not isinstance(words, Mapping):
        raise InvalidType("run", words, must_be="a table of names and values")
    return Description.from_words(model_kinds.constants(words))


def run_of(words: object) -> TrainingRun:
    """The run that the page's words describe."""
    return description(words).run()


def words_of(run: TrainingRun | Description) -> dict[str, Any]:
    """The page's words for a run; `InvalidParameter` where its controls cannot say it."""
    said = Description.of(run) if isinstance(run, TrainingRun) else run
    whole = said.run()
    if whole.batches.name not in NAMES or not whole.is_constant or said.holder is not None:
        must_be = "one with one step size, one noise and batches that sizes describe"
        raise InvalidParameter("run", must_be=must_be, found="another, which the page cannot show")
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
