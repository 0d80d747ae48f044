"""What proved arithmetic costs: steps against `arithmetic="fast"` and bare products, and noise.

Everything is measured in one run, turn by turn, on the same rows, in seconds of the processor, so
that it takes OMP_NUM_THREADS=1; the least of several timings counts.  Of a step that is the time of
a long training less that of a short one, over the steps between.  Noise is compared with its
keystream alone, which no sampler that takes 64 bits a number can undercut, and with floats by
Box and Muller's method in numpy.

    OMP_NUM_THREADS=1 python benchmarks/arithmetic_cost.py
"""

import math
import sys
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from train_throughput import least

import lastiterate as li
from lastiterate.train.data import FAST, PROVED, bounded
from lastiterate.train.noise import BITS
from lastiterate.train.noise import Randomness, SecureBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, Softmax

DRAWS = (109, 1_410, 7_850, 65_536, 2_000_000)
DRAWN = 2_000_000  # numbers in one timing


@dataclass(frozen=True)
class Case:
    """Rows, columns, batch size and classes of a training, and the steps of the two timings."""

    name: str
    examples: int
    width: int
    batch: int
    classes: int
    steps: tuple[int, int]

    @property
    def objective(self):
        return Logistic() if self.classes == 2 else Softmax(classes=self.classes)

    def rows_and_labels(self):
        """Rows a little longer than the bound, drawn around one centre a class."""
        rng = np.random.default_rng(0)
        labels = rng.integers(self.classes, size=self.examples)
        rows = rng.standard_normal((self.examples, self.width), dtype=np.float32)
        rows += 0.3 * rng.standard_normal((self.classes, self.width), dtype=np.float32)[labels]
        return rows / (0.9 * np.linalg.norm(rows, axis=1, keepdims=True)), labels


CASES = (
    Case("Adult", 32_561, 108, 397, 2, (20, 820)),
    Case("MNIST", 12_000, 784, 236, 10, (10, 260)),
    Case("head", 2_600, 2_048, 1_281, 1_000, (1, 6)),
)


def trainings(case, examples):
    """Two functions that train, one for few steps and one for many."""
    objective = case.objective
    loss = objective.loss(radius=examples.radius, l2=0.0)
    run = li.TrainingRun(
        loss=loss,
        sensitivity=objective.sensitivity(radius=examples.radius, adjacency="replace") * 1.001,
        batches=li.ShuffledOnce(case.examples, case.batch),
        steps=case.steps[0],
        step_size=1.0 / loss.smoothness,
        noise_std=0.05,
        release_noise_std=0.01,
    )
    return [
        lambda k=k: noisy_descent(run.replace(steps=k), objective, examples) for k in case.steps
    ]


def steps_of(case, dtype, repeats):
    """Seconds of a step: bare products, fast, and proved."""
    rows, labels = case.rows_and_labels()
    data = bounded(rows.astype(dtype), labels, bound=1.0, intercept=0.125)
    objective, batch = case.objective, data.rows[: case.batch]
    weights = np.random.default_rng(0).normal(size=(objective.outputs, case.width)).astype(dtype)
    residual = np.ones((objective.outputs, case.batch), dtype)
    times = case.steps[1] - case.steps[0]

    def bare():
        for _ in range(times):
            batch @ weights.T
            residual @ batch

    ours = [trainings(case, replace(data, arithmetic=one)) for one in (FAST, PROVED)]
    for short, _ in ours:
        short()  # whatever is compiled, is so before
    floor, *taken = least(bare, *ours[0], *ours[1], repeats=repeats)
    return floor / times, (taken[1] - taken[0]) / times, (taken[3] - taken[2]) / times


def add_steps(table, repeats):
    for case in CASES:
        for dtype in (np.float32, np.float64):
            print(f"measuring {case.name}, {dtype.__name__}", file=sys.stderr)
            floor, fast, proved = steps_of(case, dtype, repeats)
            table.add_row(
                f"{case.name}, {case.width:,} x {case.objective.outputs:,}, {dtype.__name__}",
                f"{fast * 1e6:,.0f}",
                f"{proved * 1e6:,.0f}",
                f"{proved / fast:.2f}",
                f"{floor / fast:.2f}",
                f"{floor / proved:.2f}",
            )


def box_muller(source, count):
    """Floats, from as many words."""
    half = -(-count // 2)
    words = source.words(2 * half)
    radius = np.sqrt(-2.0 * np.log((words[:half] + 0.5) * 2.0**-64))
    angle = 2.0 * math.pi * 2.0**-64 * words[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def add_noise(table, repeats):
    source, drawn = SecureBits(), Randomness()
    drawn.rounded_normals((DRAWN,), BITS)
    for count in DRAWS:
        times = max(DRAWN // count // 10, 1)

        def repeated(action, times=times):
            return lambda: [action() for _ in range(times)]

        found = least(
            repeated(lambda count=count: source.words(count)),
            repeated(lambda count=count: box_muller(source, count)),
            repeated(lambda count=count: drawn.rounded_normals((count,), BITS)),
            repeats=repeats,
        )
        rates = [f"{times * count / one / 1e6:,.0f}" for one in found]
        table.add_row(f"{count:,} numbers at a time", *rates)


def main():
    repeats = 7
    steps = Table("microseconds a step", "fast", "proved", "ratio", "floor/fast", "floor/proved")
    add_steps(steps, repeats)
    noise = Table("millions a second", "keystream alone", "floats, in numpy", "exact, on the grid")
    add_noise(noise, repeats)
    for table in (steps, noise):
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
