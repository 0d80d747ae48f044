"""Choices that the page offers, taken from the library so that they need not be written twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lastiterate
from lastiterate.explore.model_kinds import MODELS
from lastiterate.explore.presets import FIRST, PRESETS, delta_to_begin_with
from lastiterate.run.adjacency import IN_WORDS
from lastiterate.run.batch_rules.rules import RULES, Resampling
from lastiterate.run.description import NAMES


def offered(run: Mapping[str, Any] | None) -> dict[str, Any]:
    """Everything that can be chosen, and the run to begin with."""
    begun = PRESETS[FIRST] if run is None else dict(run)
    return {
        "version": lastiterate.__version__,
        "delta": delta_to_begin_with(begun["examples"]),
        "presets": PRESETS,
        "deltas": {name: delta_to_begin_with(one["examples"]) for name, one in PRESETS.items()},
        "run": begun,
        "batches": {
            name: {
                "says": RULES[name].in_words,
                "sized": RULES[name].ordered,
                "drafted": RULES[name].resampling in (Resampling.ONCE, Resampling.EACH_EPOCH),
            }
            for name in NAMES
        },
        "adjacencies": IN_WORDS,
        "models": {
            model.name: {
                "name": model.in_words,
                "says": model.says,
                "by_feature_norm": model.by_feature_norm,
            }
            for model in MODELS.values()
        },
    }
