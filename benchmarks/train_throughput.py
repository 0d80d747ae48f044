"""Examples per second in training, against bare matrix products and against Opacus.

Everything is measured in one run, turn by turn, on the same rows and batches, in seconds of the
processor, so that it takes OMP_NUM_THREADS=1; the least of several timings counts.  Opacus is
measured only where it is installed, and our loops are compiled only where Numba is
(`lastiterate[fast]`).  The rows are MNIST's with `--data`, else drawn around one centre a class; of
two classes, even digits against odd ones.  An envelope is solved for where an example is clipped,
so the share of these is printed, and what it costs when all are.  Opacus sees a part of the rows.

    make bench-train DATA=folder    # or without, if there is no MNIST
"""

import argparse
import importlib.util
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import lastiterate as li
from lastiterate.train import objectives as clipping
from lastiterate.train.data import bounded
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, Softmax

EXAMPLES, WIDTH, BATCH = 60_000, 784, 1_500
BATCHES = EXAMPLES // BATCH


def timed(action):
    before = time.process_time()
    action()
    return time.process_time() - before


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
    """A function that trains for an epoch."""
    warnings.simplefilter("ignore")  # of hooks and of its generator, which change no time
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

    def epoch():
        for inputs, targets in loader:
            optimiser.zero_grad()
            loss(model(inputs), targets).backward()
            optimiser.step()

    return epoch


def rows_and_labels(folder, classes):
    """MNIST's, or as many rows, drawn around one centre a class; and which of these."""
    if folder is not None and classes <= 10:
        from datasets import load

        rows, digits, _, _ = load("mnist", folder)
        return rows, digits.astype(np.intp) % classes, "MNIST"
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=EXAMPLES)
    rows = rng.standard_normal((EXAMPLES, WIDTH), dtype=np.float32)
    rows += 0.3 * rng.standard_normal((classes, WIDTH), dtype=np.float32)[labels]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, labels, "rows drawn"


class CountingClips(Softmax, abstract=True):
    """Also counts examples, and those that are clipped."""

    seen = clipped = 0

    def residual(self, outputs, targets):
        norms = np.linalg.norm(clipping.softmax_residual(outputs, targets), axis=0)
        CountingClips.seen += norms.size
        CountingClips.clipped += int((norms > self.clip).sum())
        return super().residual(outputs, targets)


@dataclass(frozen=True)
class Case:
    """So many classes; the slower the pace, the more examples stay clipped."""

    classes: int
    pace: float
    goal: float
    epochs: int = 20
    shown_to_opacus: int = 10 * BATCH

    @property
    def objectives(self):
        if self.classes == 2:
            return {"logistic": Logistic()}
        return {
            "envelope clip": Softmax(classes=self.classes),
            "margin clip": Softmax(classes=self.classes, kind="margin"),
        }


# With drawn rows about nine tenths of the examples are clipped of ten classes, and then half.
CASES = (
    Case(2, 1.0, 0.85),
    Case(10, 0.32, 0.65),
    Case(10, 0.6, 0.75),
    Case(100, 1.0, 0.5, epochs=4, shown_to_opacus=2 * BATCH),
)


def compared(value, goal, *, above=True):
    """A goal, and whether it is reached."""
    reached = value >= goal if above else value <= goal
    sign, colour = (">=" if above else "<="), ("green" if reached else "red")
    return f"{sign} {goal:g}", f"[{colour}]{'reached' if reached else 'missed'}[/]"


def clipped_share(examples, case):
    """Of all examples of all steps."""
    CountingClips.seen = CountingClips.clipped = 0
    our_epochs(examples, CountingClips(classes=case.classes), case.epochs, li.Cyclic, case.pace)()
    return CountingClips.clipped / CountingClips.seen


def throughput(table, case, rows, labels, origin, repeats):
    outputs = 1 if case.classes == 2 else case.classes
    examples = bounded(rows, labels, bound=1.0, intercept=0.125)
    ours = [
        our_epochs(examples, kind, epochs, li.Cyclic, case.pace)
        for kind in case.objectives.values()
        for epochs in (case.epochs, 1)
    ]
    for action in ours[1::2]:
        action()  # whatever is compiled, is so before
    bare, *taken = least(lambda: bare_epochs(rows, outputs, case.epochs), *ours, repeats=repeats)
    title = f"{case.classes} classes, {origin}"
    if case.classes > 2:
        title += f", {clipped_share(examples, case):.0%} clipped"
    table.add_section()
    table.add_row(f"[bold]{title}")
    table.add_row("  bare products", f"{case.epochs * EXAMPLES / bare:,.0f}", "1.00")
    for name, whole, first in zip(case.objectives, taken[::2], taken[1::2], strict=True):
        each = (whole - first) / (case.epochs - 1)
        share = bare / case.epochs / each
        goal = () if name == "margin clip" else compared(share, case.goal)
        table.add_row(
            f"  ours, {name}, an epoch more", f"{EXAMPLES / each:,.0f}", f"{share:.2f}", *goal
        )
        rate, share = case.epochs * EXAMPLES / whole, bare / whole
        table.add_row(
            f"  .. all {case.epochs}, and a copy of the rows", f"{rate:,.0f}", f"{share:.2f}"
        )
    if importlib.util.find_spec("opacus"):
        against_opacus(table, case, rows, labels, ours=case.epochs * EXAMPLES / taken[0])


def against_opacus(table, case, rows, labels, *, ours):
    """Its rate beside ours with everything, after a first epoch that does not count."""
    part = slice(case.shown_to_opacus)
    epoch = opacus_epoch(rows[part], labels[part], case.classes)
    epoch()
    rate = case.shown_to_opacus / least(epoch, repeats=2)[0]
    goal = compared(ours / rate, 15)
    table.add_row(
        "  Opacus; ours is so many times as fast", f"{rate:,.0f}", f"{ours / rate:.1f} x", *goal
    )


def clip_cost(table):
    """A step's residual with its two products, plain and with each clip; everything clipped."""
    rng = np.random.default_rng(0)
    table.add_row("[bold]a step's residuals, 10 classes, all clipped")
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
            ratio = seconds / plain
            goal = compared(ratio, 3, above=False)
            what = f"  {name} clip, {width} features"
            table.add_row(what, f"{BATCH / seconds:,.0f}", f"{ratio:.2f} x plain", *goal)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder with mnist/")
    options = parser.parse_args()
    compiled = "compiled" if importlib.util.find_spec("numba") else "not compiled: no Numba"
    table = Table(f"training, {compiled}", "examples a second", "ratio", "goal", "")
    clip_cost(table)  # first: once torch is loaded, its threads compete for the cores
    for done, case in enumerate(CASES, 1):
        print(f"measuring {done} of {len(CASES)}: {case.classes} classes", file=sys.stderr)
        throughput(table, case, *rows_and_labels(options.data, case.classes), options.repeats)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
