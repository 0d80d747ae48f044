"""Epsilon of SGD with momentum against epochs: every iterate, the last one, and plain steps.

python examples/momentum.py                  prints a table
python examples/momentum.py --save FILE      draws the picture of docs/momentum.md instead
"""

import argparse
import math

import lastiterate as li
from lastiterate import plot
from lastiterate.bounds.bound import BLUE, GREY, SKY, LineStyle

BATCH, NOISE, STEP, BETA = 512, 4.0, 0.05, 0.9
NAMES = (
    "every iterate\n(composition)",
    "last iterate,\nmomentum 0.9",
    "last iterate,\nplain steps 10\ntimes as long",
    "momentum 0.9,\nnoise on release",
)


def training(epochs, **changes):
    """Logistic regression on rows of norm 1, in a public order; one example is replaced."""
    settings = {
        "loss": li.Loss(smoothness=0.26, strong_convexity=0.01, regulariser=0.01, lipschitz=1.0),
        "sensitivity": 2.0,
        "batches": li.Cyclic(examples=98 * BATCH, batch_size=BATCH),
        "steps": 98 * epochs,
        "step_size": STEP,
        "noise_std": NOISE / BATCH,
        "momentum": BETA,
    }
    return li.TrainingRun(**{**settings, **changes})


def epsilons(epochs):
    """Epsilon at delta = 1e-5 of the four trainings, in the order of `NAMES`."""
    longer = STEP / (1 - BETA)
    released = {"release_noise_std": longer * NOISE / BATCH}
    reports = (
        li.account(training(epochs), bounds="composition/fixed-order"),
        li.account(training(epochs)),
        li.account(training(epochs, momentum=0.0, step_size=longer)),
        li.account(training(epochs, **released)),
    )
    return [report.epsilon(1e-5) for report in reports]


def draw(path):
    epochs = (1, 2, 3, 5, 10, 30, 100, 300)
    found = [epsilons(many) for many in epochs]
    curves = {name: [one[k] for one in found] for k, name in enumerate(NAMES)}
    styles = (
        LineStyle(GREY, "-"),
        LineStyle(BLUE, "-"),
        LineStyle(SKY, ":"),
        LineStyle(BLUE, "--"),
    )
    line_styles = dict(zip(NAMES, styles, strict=True))
    up = "epsilon at delta = 1e-5"
    plot.save(plot.lines(epochs, curves, across="epochs", up=up, line_styles=line_styles), path)


def table(epochs=(10, 300)):
    """Rows of the table, epsilon rounded up."""
    yield ("epochs", *(name.replace("\n", " ") for name in NAMES))
    for many in epochs:
        yield (str(many), *(f"{math.ceil(100 * one) / 100:.2f}" for one in epsilons(many)))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--save", help="draw the picture into this file")
    options = arguments.parse_args()
    if options.save:
        draw(options.save)
    else:
        for cells in table():
            print("|", " | ".join(cells), "|")
