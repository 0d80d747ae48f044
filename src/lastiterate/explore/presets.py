"""Runs to begin with."""

from __future__ import annotations

from typing import Any

from lastiterate.accounting import USUAL_DELTA

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


def delta_to_begin_with(examples: int) -> float:
    """The usual delta, or a smaller power of ten that is at most a tenth of 1/examples.

    >>> delta_to_begin_with(50_000), delta_to_begin_with(1_000_000)
    (1e-05, 1e-07)
    """
    if USUAL_DELTA * examples < 1.0:
        return USUAL_DELTA
    return float(f"1e-{len(str(examples - 1)) + 1}")
