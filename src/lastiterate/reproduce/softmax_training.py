"""Noisy gradient descent on softmax regression, as the papers trained it: seeded, not certified.

It exists to check printed accuracies.  Gradients are clipped by their norm, which does not keep
the steps contractive for three classes or more (see the errata), so no privacy guarantee of the
library applies; `li.linear_model` has the trainers that are certified.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Batches = Literal["cyclic", "shuffled", "sampled"]
Clipping = Literal["norm", "wrong mass"]


@dataclass(frozen=True)
class SoftmaxSettings:
    """The constants of one training; `noise_std` is that of the averaged gradient.

    `clipping` is "norm", as published, or "wrong mass": residuals scaled by the mass on wrong
    classes, which is the gradient of a convex loss with the same largest norm.
    """

    clip_norm: float
    step_size: float
    noise_std: float
    batch_size: int
    regulariser: float
    epochs: int
    batches: Batches = "cyclic"
    clipping: Clipping = "norm"


def clipped_rows(x: Floats, norm: float) -> Floats:
    """Rows scaled down to at most `norm`."""
    sizes = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x * np.minimum(1.0, norm / np.maximum(sizes, 1e-12)), dtype=np.float32)


def with_intercept(x: Floats) -> Floats:
    """Rows with a constant 1 appended."""
    return np.hstack([x, np.ones((len(x), 1), np.float32)]).astype(np.float32)


def residuals(
    logits: Floats, y: Labels, norms: Floats, *, clip_norm: float, clipping: Clipping
) -> Floats:
    """Rows whose outer product with the features is the clipped gradient."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    wrong = 1.0 - p[rows, y]
    p[rows, y] -= 1.0
    if clipping == "norm":
        size = np.linalg.norm(p, axis=1) * norms
        scale = np.minimum(1.0, clip_norm / np.maximum(size, 1e-30))
    else:
        scale = np.minimum(1.0, clip_norm / (math.sqrt(2.0) * norms) / np.maximum(wrong, 1e-30))
    return np.asarray(p * scale[:, None], dtype=np.float32)


def weights_by_epoch(
    x: Floats, y: Labels, settings: SoftmaxSettings, seed: int
) -> Iterator[tuple[int, Floats]]:
    """The number of epochs and the weights, after each epoch."""
    rng = np.random.default_rng(seed)
    size = settings.batch_size
    weights = np.zeros((x.shape[1], int(y.max()) + 1), np.float32)
    norms = np.linalg.norm(x, axis=1)
    if settings.batches == "shuffled":
        order = rng.permutation(len(x))
        x, y, norms = x[order], y[order], norms[order]
    for epoch in range(1, settings.epochs + 1):
        for first in range(0, len(x) - size + 1, size):
            part: NDArray[np.int64] | slice = slice(first, first + size)
            if settings.batches == "sampled":
                part = rng.choice(len(x), size, replace=False, shuffle=False)
            batch = x[part]
            rows = residuals(
                batch @ weights, y[part], norms[part],
                clip_norm=settings.clip_norm, clipping=settings.clipping,
            )  # fmt: skip
            gradient = batch.T @ rows / size + settings.regulariser * weights
            noise = rng.standard_normal(weights.shape, dtype=np.float32) * settings.noise_std
            weights = (weights - settings.step_size * (gradient + noise)).astype(np.float32)
        yield epoch, weights


def accuracy(x: Floats, y: Labels, weights: Floats) -> float:
    """The accuracy in per cent."""
    return float(np.mean(np.argmax(x @ weights, axis=1) == y)) * 100.0
