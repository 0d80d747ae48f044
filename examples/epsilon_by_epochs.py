"""Epsilon against training time: every iterate charged for, or only the last one released.

python examples/epsilon_by_epochs.py                  prints the README's table
python examples/epsilon_by_epochs.py --save FILE      draws the README's picture as well
"""

import argparse

from rich.console import Console
from rich.table import Table

import lastiterate as li
from lastiterate import plot
from lastiterate.plot.style import BLUE, GREY, SKY, Pen

DELTA = 1e-5
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
    sensitivity=10.0,
    batches=li.ShuffledOnce(examples=60_000, batch_size=1_500),
    steps=2_000,
    step_size=0.05,
    noise_std=0.01,
)
SAMPLED = RUN.replace(batches=li.SampledWithoutReplacement(60_000, 1_500))
EPOCHS = (50, 100, 200, 1_000, 10_000)


def epsilons(epochs):
    """What accountants charge for sampled batches, and the last iterate of shuffled ones."""
    steps = 40 * epochs
    every = li.account(SAMPLED.replace(steps=steps), bounds="composition")
    last = li.account(RUN.replace(steps=steps))
    hidden = li.account(RUN.replace(steps=steps, release_noise_std=0.002))
    return [report.epsilon(DELTA) for report in (every, last, hidden)]


def table():
    result = Table("epochs", "every iterate", "last iterate", "with release noise 0.002")
    for epochs in EPOCHS:
        result.add_row(f"{epochs:,}", *(f"{x:.2f}" for x in epsilons(epochs)))
    return result


def draw(path):
    epochs = sorted({round(10 ** (k / 12)) for k in range(49)})
    names = (
        "every iterate\n(composition,\nsampled batches)",
        "last iterate,\nbatches shuffled once",
        "... and a little\nnoise on release",
    )
    curves = dict(zip(names, zip(*map(epsilons, epochs), strict=True), strict=True))
    pens = dict(zip(names, (Pen(GREY, "-"), Pen(BLUE, "-"), Pen(SKY, "-")), strict=True))
    up = f"epsilon at delta = {DELTA:g}"
    plot.save(plot.lines(epochs, curves, across="epochs", up=up, pens=pens), path)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--save", help="also draw the picture into this file")
    options = arguments.parse_args()
    Console().print(table())
    if options.save:
        draw(options.save)
