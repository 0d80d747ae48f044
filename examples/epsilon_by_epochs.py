"""Epsilon against training time: every iterate charged for, or only the last one released.

python examples/epsilon_by_epochs.py                  prints the README's table
python examples/epsilon_by_epochs.py --save FILE      draws the README's picture as well
"""

import argparse

from rich.console import Console
from rich.table import Table

import lastiterate as li

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
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install 'lastiterate[plot]'") from None
    epochs = sorted({round(10 ** (k / 12)) for k in range(49)})
    every, last, hidden = zip(*map(epsilons, epochs), strict=True)
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    axes.plot(epochs, every, color="0.55", label="every iterate, sampled batches (composition)")
    axes.plot(epochs, last, color="C0", label="last iterate, batches shuffled once")
    axes.plot(epochs, hidden, color="C0", linestyle="--", label="... and a little noise on release")
    axes.set(xscale="log", ylim=(0, 30), xlabel="epochs", ylabel="epsilon at delta = 1e-5")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--save", help="also draw the picture into this file")
    options = arguments.parse_args()
    Console().print(table())
    if options.save:
        draw(options.save)
