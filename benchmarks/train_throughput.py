"""Examples per second in training, against bare matrix products and against Opacus.

Everything is measured in one run, turn by turn, on the same rows and batches; the least of several
timings counts.  Opacus is measured only where it is installed.  The rows are MNIST's with `--data`,
else drawn around one centre a class, so that about as many are clipped; for two classes, even
digits against odd ones.  An envelope is solved for where an example is clipped, so the share of
these is printed, and what it costs when all are.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import lastiterate as li
from lastiterate.train import clipping
from lastiterate.train.data import bounded
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, Softmax

EXAMPLES, WIDTH, BATCH = 60_000, 784, 1_500
BATCHES = EXAMPLES // BATCH


def timed(action):
    before = time.perf_counter()
    action()
    return time.perf_counter() - before


def least(*actions, repeats=5):
    """The least time of each action, taking turns so that all see the same machine."""
    times = [[timed(action) for action in actions] for _ in range(repeats)]
    return np.min(times, axis=0)


def bare_epochs(rows, outputs, epochs, *, wide=True):
    """Two products a batch and nothing else, the first of them short and wide or long and thin."""
    weights = np.random.default_rng(0).normal(size=(outputs, WIDTH)).astype(rows.dtype)
    residual = np.ones((outputs, BATCH), rows.dtype)
    for _ in range(epochs):
        for start in range(0, EXAMPLES, BATCH):
            batch = rows[start : start + BATCH]
            weights @ batch.T if wide else batch @ weights.T
            residual @ batch


def our_epochs(examples, objective, epochs, batches, pace=1.0):
    """A function that trains for so many epochs; at a slower pace more examples stay clipped."""
    loss = objective.loss(radius=examples.radius, l2=0.0)
    run = li.TrainingRun(
        loss=loss,
        sensitivity=objective.sensitivity(radius=examples.radius, adjacency="replace") * 1.001,
        batches=batches(EXAMPLES, BATCH),
        steps=epochs * BATCHES,
        step_size=pace * 1.99 / loss.smoothness,
        noise_std=1e-3,
        release_noise_std=1e-3,
    )
    return lambda: noisy_descent(run, objective, examples)


def opacus_epoch(rows, labels, classes):
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels))
    model = torch.nn.Linear(WIDTH, classes)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimiser, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimiser,
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    loss = torch.nn.CrossEntropyLoss()
    for inputs, targets in loader:
        optimiser.zero_grad()
        loss(model(inputs), targets).backward()
        optimiser.step()


def rows_and_digits(folder):
    """MNIST's, or as many rows of as many classes."""
    if folder is not None:
        from datasets import load

        rows, digits, _, _ = load("mnist", folder)
        return rows, digits.astype(np.intp)
    rng = np.random.default_rng(0)
    digits = rng.integers(10, size=EXAMPLES)
    rows = rng.standard_normal((EXAMPLES, WIDTH), dtype=np.float32)
    rows += 0.3 * rng.standard_normal((10, WIDTH), dtype=np.float32)[digits]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, digits


class CountingClips(Softmax, abstract=True):
    """Also counts examples, and those that are clipped."""

    seen = clipped = 0

    def residual(self, outputs, targets):
        norms = np.linalg.norm(clipping.softmax_residual(outputs, targets), axis=0)
        CountingClips.seen += norms.size
        CountingClips.clipped += int((norms > self.clip).sum())
        return super().residual(outputs, targets)


def throughput(table, rows, digits, epochs, repeats):
    for classes in (2, 10):
        labels = digits % classes
        examples = bounded(rows, labels, bound=1.0, intercept=0.125)
        outputs = 1 if classes == 2 else classes
        kinds = {"logistic": Logistic()}
        if classes > 2:
            kinds = {
                "margin clip": Softmax(classes=classes, kind="margin"),
                "envelope clip": Softmax(classes=classes),
            }
        actions = [
            lambda outputs=outputs, wide=wide: bare_epochs(rows, outputs, epochs, wide=wide)
            for wide in (True, False)
        ]
        actions += [our_epochs(examples, kind, epochs, li.Cyclic) for kind in kinds.values()]
        actions += [our_epochs(examples, kind, epochs, li.ShuffledOnce) for kind in kinds.values()]
        times = epochs * EXAMPLES / least(*actions, repeats=repeats)
        table.add_row(f"bare products, {classes} classes", f"{times[0]:,.0f}", "1.00", "")
        thin = f"{times[1] / times[0]:.2f}"
        table.add_row("  the first of them long and thin", f"{times[1]:,.0f}", thin, "")
        names = [*kinds, *(f"{name}, making a shuffled copy first" for name in kinds)]
        for name, rate in zip(names, times[2:], strict=True):
            table.add_row(f"  ours, {name}", f"{rate:,.0f}", f"{rate / times[0]:.2f}", ">= 0.7")
        if classes > 2:
            our_epochs(examples, CountingClips(classes=classes), epochs, li.Cyclic)()
            share = CountingClips.clipped / CountingClips.seen
            table.add_row("  of the examples were clipped", "", f"{share:.2f}", "")
        if importlib.util.find_spec("opacus"):
            (seconds,) = least(lambda: opacus_epoch(rows, labels, classes), repeats=2)  # noqa: B023 - called at once
            rate = EXAMPLES / seconds
            ratio = f"ours / it: {times[2:].min() / rate:.1f}"
            table.add_row("  Opacus", f"{rate:,.0f}", ratio, ">= 10")


def clip_cost(table):
    """A step's residual with its two products, plain and with each clip; everything clipped."""
    rng = np.random.default_rng(0)
    for width in (500, 784):
        rows = rng.normal(size=(BATCH, width)).astype(np.float32)
        weights = (rng.normal(size=(10, width)) / width**0.5).astype(np.float32)
        labels = rng.integers(10, size=BATCH)

        def step(residual, rows=rows, weights=weights, labels=labels):
            found = residual((weights @ rows.T).astype(np.float64), labels)
            return found.astype(np.float32) @ rows

        plain, margin, envelope = least(
            lambda: step(clipping.softmax_residual),
            lambda: step(lambda u, y: clipping.margin_clipped_residual(u, y, 0.35)),
            lambda: step(lambda u, y: clipping.envelope_clipped_residual(u, y, 0.35)),
            repeats=30,
        )
        for name, seconds in (("margin", margin), ("envelope", envelope)):
            what = f"{name} clip of every example, d {width}, K 10"
            goal = "<= 3"
            table.add_row(what, f"{1e3 * seconds:.2f} ms", f"{seconds / plain:.2f} x plain", goal)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder with mnist/")
    options = parser.parse_args()
    table = Table("what", "examples a second", "ratio", "goal")
    clip_cost(table)  # first: once torch is loaded, its threads compete for the cores
    throughput(table, *rows_and_digits(options.data), options.epochs, options.repeats)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
