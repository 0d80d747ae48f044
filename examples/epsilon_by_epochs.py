"""Epsilon of DP-SGD runs: charged for every iterate, or for the last one alone.

python examples/epsilon_by_epochs.py                  prints the README's table
python examples/epsilon_by_epochs.py --save FILE      draws the README's picture instead
"""

import argparse
import math

import lastiterate as li
from lastiterate import plot
from lastiterate.bounds.bound import BLUE, GREY, SKY, LineStyle

HEADINGS = (
    "training",
    "every iterate, Poisson",
    "last, Poisson",
    "last, shuffled",
    "lower bound",
)
SMALL, LARGE = (50_000, 400), (1_000_000, 1_000)  # examples, batch size


def logistic_regression(rule, examples, batch_size, epochs, penalty):
    """Rows of norm at most 1, so that a clip at 1 is never active; noise multiplier 1."""
    return li.TrainingRun.from_dp_sgd(
        loss=li.Loss(smoothness=0.25 + penalty, regulariser=penalty, lipschitz=1.0, outputs=1),
        batches=rule(examples, batch_size),
        clip_norm=1.0,
        noise_multiplier=1.0,
        steps=epochs * (examples // batch_size),
        step_size=0.5,
        adjacency="zero-out",
    )


def accounts(*run):
    """Reports on every iterate (Poisson), the last one (Poisson), the last one (shuffled)."""
    poisson = logistic_regression(li.PoissonSampled, *run)
    shuffled = logistic_regression(li.ShuffledEachEpoch, *run)
    hidden = ("random-order/poisson/hidden-participations", "composition/sampled")
    return (
        li.account(poisson, bounds="composition/sampled"),
        li.account(poisson, bounds=hidden),
        li.account(shuffled),
    )


def row(name, delta, *run):
    """Certified epsilons rounded up, and the lower bound for Poisson batches rounded down."""
    every, last, shuffled = accounts(*run)
    above = [math.ceil(100 * one.epsilon(delta)) / 100 for one in (every, last, shuffled)]
    below = math.floor(100 * last.lower.epsilon(delta)) / 100
    return (name, *(f"{number:.2f}" for number in (*above, below)))


def table():
    yield HEADINGS
    yield ("---", *["---:"] * (len(HEADINGS) - 1))
    yield row("50,000 examples, batches of 400, 30 epochs", 1e-5, *SMALL, 30, 0.01)
    yield row("the same, 300 epochs", 1e-5, *SMALL, 300, 0.01)
    yield row("1,000,000 examples, batches of 1,000, 100 epochs", 1e-7, *LARGE, 100, 0.001)


def draw(path):
    epochs = sorted({round(10 ** (k / 6)) for k in range(19)})
    names = (
        "every iterate,\nPoisson batches\n(standard accountant)",
        "last iterate,\nshuffled batches",
        "last iterate,\nPoisson batches",
    )
    found = [accounts(*SMALL, many, 0.01) for many in epochs]
    curves = {
        name: [accounted[k].epsilon(1e-5) for accounted in found]
        for name, k in zip(names, (0, 2, 1), strict=True)
    }
    line_styles = dict(
        zip(names, (LineStyle(GREY, "-"), LineStyle(SKY, "-"), LineStyle(BLUE, "-")), strict=True)
    )
    up = "epsilon at delta = 1e-5"
    plot.save(plot.lines(epochs, curves, across="epochs", up=up, line_styles=line_styles), path)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--save", help="draw the picture into this file")
    options = arguments.parse_args()
    if options.save:
        draw(options.save)
    else:
        for cells in table():
            print("|", " | ".join(cells), "|")
