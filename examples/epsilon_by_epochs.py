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
    batches=li.Cyclic(examples=60_000, batch_size=1_500),
    steps=2_000,
    step_size=0.05,
    noise_std=0.01,
)
EPOCHS = (50, 100, 200, 1_000, 10_000)


def epsilons(epochs, **changes):
    report = li.account(RUN.replace(steps=40 * epochs, **changes))
    composed = report.all["composition/fixed-order"].epsilon(DELTA)
    return composed, report.epsilon(DELTA)


def table():
    result = Table("epochs", "every iterate (composition)", "last iterate", "+ release noise 0.002")
    for epochs in EPOCHS:
        composed, last = epsilons(epochs)
        _, hidden = epsilons(epochs, release_noise_std=0.002)
        result.add_row(f"{epochs:,}", *(f"{x:.2f}" for x in (composed, last, hidden)))
    return result


def draw(path):
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install 'lastiterate[plot]'") from None
    epochs = sorted({round(10 ** (k / 12)) for k in range(49)})
    values = [epsilons(e) for e in epochs]
    hidden = [epsilons(e, release_noise_std=0.002)[1] for e in epochs]
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    axes.plot(epochs, [v[0] for v in values], color="0.55", label="every iterate (composition)")
    axes.plot(epochs, [v[1] for v in values], color="C0", label="last iterate")
    axes.plot(
        epochs, hidden, color="C0", linestyle="--", label="last iterate, a little noise on release"
    )
    axes.set(xscale="log", ylim=(0, 40), xlabel="epochs", ylabel=f"epsilon at delta = {DELTA:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--save", help="also draw the picture into this file")
    options = arguments.parse_args()
    Console().print(table())
    if options.save:
        draw(options.save)
