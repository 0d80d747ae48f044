"""The choices of the page: example runs, models, batch rules, and its first run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lastiterate
from lastiterate.accounting import USUAL_DELTA
from lastiterate.explore.model_kinds import MODELS
from lastiterate.run.adjacency import IN_WORDS
from lastiterate.run.batch_rules.rules import RULES, Resampling
from lastiterate.run.description import NAMES

PRESETS: dict[str, dict[str, Any]] = {
    "MNIST softmax": {
        "examples": 60_000,
        "batch_size": 1_500,
        "batches": "shuffled-once",
        "epochs": 50,
        "step_size": 0.05,
        "noise_std": 0.01,
        "sensitivity": 10.0,
        "model": "stated",
        "smoothness": 32.502,
        "strong_convexity": 0.002,
        "adjacency": "replace",
    },
    "Head on embeddings": {
        "examples": 25_000,
        "batch_size": 500,
        "batches": "shuffled-each-epoch",
        "epochs": 20,
        "step_size": 1.0,
        "noise_multiplier": 2.0,
        "clip_norm": 1.0,
        "model": "logistic",
        "feature_norm": 1.0,
        "regulariser": 0.01,
        "adjacency": "zero-out",
    },
    "Million-row logistic": {
        "examples": 1_000_000,
        "batch_size": 10_000,
        "batches": "cyclic",
        "epochs": 30,
        "step_size": 0.5,
        "noise_multiplier": 4.0,
        "clip_norm": 1.0,
        "model": "logistic",
        "feature_norm": 1.0,
        "regulariser": 0.001,
        "adjacency": "zero-out",
    },
    "Opacus defaults": {
        "examples": 50_000,
        "batch_size": 512,
        "batches": "poisson",
        "epochs": 30,
        "noise_multiplier": 1.0,
        "clip_norm": 1.0,
        "model": "unknown",
        "adjacency": "zero-out",
    },
}
FIRST = "Million-row logistic"


def usual_delta(examples: int) -> float:
    """The usual delta, or a smaller power of ten that is at most a tenth of 1/examples.

    >>> usual_delta(50_000), usual_delta(1_000_000)
    (1e-05, 1e-07)
    """
    if USUAL_DELTA * examples < 1.0:
        return USUAL_DELTA
    return float(f"1e-{len(str(examples - 1)) + 1}")


def page_options(run: Mapping[str, Any] | None) -> dict[str, Any]:
    """Everything that the page's controls offer, and the run to begin with."""
    first = PRESETS[FIRST] if run is None else dict(run)
    return {
        "version": lastiterate.__version__,
        "delta": usual_delta(first["examples"]),
        "presets": PRESETS,
        "deltas": {name: usual_delta(one["examples"]) for name, one in PRESETS.items()},
        "run": first,
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
