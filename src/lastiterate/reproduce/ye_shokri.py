"""Ye and Shokri 2022: the privacy of their experiments, and their Algorithm 2 on given features.

The settings are those of the authors' code (the appendix with the experiments is not at hand).
Epsilon is theirs: Corollary 5.3, plus the divergence of noisy feature statistics, converted as in
Mironov 2017, the least over a grid of orders.

The trainer is noisy gradient descent on softmax regression, seeded and not certified.  It exists to
check printed accuracies.  Gradients are clipped by their norm, which does not keep the steps
contractive for three classes or more (see the errata), so no privacy guarantee of the library
applies; `li.linear_model` has the trainers that are certified.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.published.ye_shokri import normalisation
from lastiterate.errors import InvalidParameter
from lastiterate.reproduce.items import Cell, Table, TableItem
from lastiterate.run.batch_rules.ordered import ShuffledOnce
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
Batches = Literal["cyclic", "shuffled", "sampled"]
Clipping = Literal["norm", "wrong mass"]
_DELTA = 1e-5
_ORDERS = np.concatenate([1.0 + np.arange(1, 100) / 10.0, np.arange(12.0, 64.0)])


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


@dataclass(frozen=True)
class Experiment:
    """One of their runs; `statistics_noise` is 0 where features are not normalised privately."""

    name: str
    examples: int
    batch_size: int
    step_size: float
    regulariser: float
    noise_multiplier: float
    feature_norm: float
    clip_norm: float
    epochs: int
    statistics_noise: float
    epsilon: float

    def run(self, examples: int | None = None) -> TrainingRun:
        """The run, as Corollary 5.3 sees it: an example is replaced."""
        rows = self.examples if examples is None else examples
        rule = ShuffledOnce(rows, self.batch_size)
        return TrainingRun.from_dp_sgd(
            loss=Loss(
                smoothness=(self.feature_norm**2 + 1.0) / 2.0 + self.regulariser,
                regulariser=self.regulariser,
            ),
            batches=rule,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            steps=self.epochs * rule.batches_per_epoch,
            step_size=self.step_size,
            adjacency="replace",
        )

    def epsilon_as_published(self, *, replaced_statistics: bool = False) -> float:
        """Their epsilon; `replaced_statistics` counts statistics of a replaced row, not a lost one.

        Corollary 5.3 is as published only, so nothing here is certified.
        """
        profile = CATALOGUE["published/ye-shokri/clipped-logistic"].profile(self.run())
        values: list[float] = []
        for order in _ORDERS.tolist():
            divergence = profile.renyi(order)
            if self.statistics_noise > 0.0:
                once = normalisation(noise_multiplier=self.statistics_noise, order=order)
                divergence += 4.0 * once if replaced_statistics else once
            values.append(divergence + math.log(1.0 / _DELTA) / (order - 1.0))
        return min(values)


EXPERIMENTS = (
    Experiment("MNIST", 60_000, 2_048, 0.75, 0.08, 3.08, 2.0, 3.16, 1_200, 8.0, 2.995),
    Experiment("Fashion-MNIST", 60_000, 2_048, 1.92, 0.02, 3.01, 1.0, 2.0, 1_200, 0.0, 2.997),
    Experiment("CIFAR-10", 50_000, 2_048, 0.75, 0.08, 3.23, 2.0, 1.58, 1_200, 6.0, 2.996),
    Experiment("CIFAR-10 features", 50_000, 1_024, 1.92, 0.02, 4.20, 1.0, 1.5, 600, 0.0, 1.996),
)


def privacy_table() -> Table:
    """Epsilon of their four kinds of runs; the targets are 3, 3, 3 and 2."""
    cells, notes = [], []
    for one in EXPERIMENTS:
        cells.append(Cell(f"{one.name}, epsilon", one.epsilon_as_published(), one.epsilon, 3))
        if one.statistics_noise > 0.0:
            more = one.epsilon_as_published(replaced_statistics=True)
            notes.append(
                f"{one.name}: {more:.3f} if the statistics of the features, too, are counted for "
                "a replaced row."
            )
    notes.append(
        "No text prints these numbers: they are beside what the settings of the authors' code give "
        "by their formulas, computed independently.  The printed targets are 3, 3, 3 and 2.  Not "
        "certified: gradients are clipped by their norm (see the errata)."
    )
    title = "epsilon at delta = 1e-5 of their experiments"
    return Table("ys-privacy", title, tuple(cells), tuple(notes), beside="by their settings")


def read_features(path: Path) -> tuple[Floats, Labels, Floats, Labels]:
    """Training features and labels, then test ones, from an .npz file.

    The file holds X_train, y_train, X_test and y_test; labels are whole numbers from 0.
    """
    names = ("X_train", "y_train", "X_test", "y_test")
    must_be = f"an .npz file with {', '.join(names)}"
    if not Path(path).is_file():
        raise InvalidParameter("data", str(path), must_be=must_be)
    try:
        with np.load(path, allow_pickle=False) as held:
            parts: list[Any] = [np.asarray(held[name]) for name in names]
    except (KeyError, OSError, ValueError):
        raise InvalidParameter("data", str(path), must_be=must_be) from None
    x, y, x_test, y_test = parts
    for rows, labels in ((x, y), (x_test, y_test)):
        if rows.ndim != 2 or labels.shape != (len(rows),) or not np.isfinite(rows).all():
            raise InvalidParameter("data", str(path), must_be=f"{must_be}: finite rows and labels")
        if not np.issubdtype(labels.dtype, np.integer) or not (len(labels) and labels.min() >= 0):
            must = f"{must_be}: labels that are whole numbers from 0"
            raise InvalidParameter("data", str(path), must_be=must)
    return (
        x.astype(np.float32), y.astype(np.int64),
        x_test.astype(np.float32), y_test.astype(np.int64),
    )  # fmt: skip


def train_on_features(data: Path, seeds: int) -> Table:
    """Algorithm 2 with the settings of their pretrained features, on the features of a file."""
    x, y, x_test, y_test = read_features(data)
    one = EXPERIMENTS[-1]
    if len(x) < 2 * one.batch_size:
        must_be = f"at least {2 * one.batch_size} training rows, two batches"
        raise InvalidParameter("data", str(data), must_be=must_be)
    run = one.run(len(x))
    settings = SoftmaxSettings(
        clip_norm=one.clip_norm, step_size=one.step_size, noise_std=float(np.max(run.noise_std)),
        batch_size=one.batch_size, regulariser=one.regulariser, epochs=one.epochs,
        batches="shuffled",
    )  # fmt: skip
    rows = with_intercept(clipped_rows(x, one.feature_norm))
    test = with_intercept(clipped_rows(x_test, one.feature_norm))
    weights = [list(weights_by_epoch(rows, y, settings, seed))[-1][1] for seed in range(seeds)]
    found = [np.mean([accuracy(a, b, w) for w in weights]) for a, b in ((rows, y), (test, y_test))]
    profile = CATALOGUE["published/ye-shokri/clipped-logistic"].profile(run)
    notes = (
        f"accuracy in per cent, mean of {seeds} training{'s' * (seeds > 1)}: "
        f"{found[0]:.2f} training, {found[1]:.2f} test",
        f"epsilon by Corollary 5.3, as published and NOT CERTIFIED: {profile.epsilon(_DELTA):.3f} "
        f"at delta = {_DELTA:g}",
        "Gradients are clipped by their norm and the noise is seeded.  For a certified model use "
        "lastiterate.linear_model or lastiterate.torch.",
    )
    title = f"Algorithm 2 on {len(x)} rows of {Path(data).name}, not certified"
    return Table("ys-algorithm-2", title, (), notes)


TABLES = (
    TableItem("ys-privacy", "epsilon of their experiments", privacy_table),
    TableItem(
        "ys-algorithm-2",
        "their Algorithm 2, trained on your features (not certified)",
        train_on_features,
        "an .npz file with X_train, y_train, X_test and y_test",
    ),
)
