"""The pages' pictures, drawn when they are built."""

import numpy as np
from matplotlib.figure import Figure

import lastiterate as li
from lastiterate import plot
from lastiterate.plot.save import as_svg
from lastiterate.plot.style import BLUE, GREY, VERMILLION, figure, style

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
    sensitivity=10.0,
    batches=li.ShuffledOnce(examples=60_000, batch_size=1_500),
    steps=2_000,
    step_size=0.05,
    noise_std=0.01,
)
CONTRACTION, SHIFT = 0.99, 0.15  # of the quadratic; the shift is in units of a step's noise


def all_of_them() -> dict[str, str]:
    """SVG text by file name."""
    drawn = {
        "epsilon-by-steps": plot.epsilon_by_steps(RUN),
        "shift-schedule": plot.shift_schedule(RUN),
        "tradeoff": plot.tradeoff(li.account(RUN)),
        "two-laws": two_laws((1, 100, 1_000, 10_000)),
    }
    return {f"{name}.svg": as_svg(one) for name, one in drawn.items()}


def two_laws(lengths: tuple[int, ...]) -> Figure:
    """The last iterate of a quadratic loss on two adjacent data sets."""
    with style():
        canvas = figure(7.2, 2.6)
        for axes, steps in zip(canvas.subplots(1, len(lengths)), lengths, strict=True):
            apart = SHIFT * (1 - CONTRACTION**steps) / (1 - CONTRACTION)
            spread = np.sqrt((1 - CONTRACTION ** (2 * steps)) / (1 - CONTRACTION**2))
            x = np.linspace(-4 * spread, apart + 4 * spread, 400)
            for centre, colour in ((0.0, BLUE), (apart, VERMILLION)):
                law = np.exp(-(((x - centre) / spread) ** 2) / 2)
                axes.plot(x, law, color=colour)
                axes.fill_between(x, law, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(f"{steps:,} step" + "s" * (steps > 1), fontweight="bold")
            axes.set(yticks=[], xticks=[], ylim=(0, 1.1))
            axes.spines["left"].set_visible(False)
            mus = f"last iterate: mu {apart / spread:.2f}", f"every iterate: {composed(steps):.2f}"
            axes.text(0.5, -0.08, mus[0], transform=axes.transAxes, ha="center", va="top")
            axes.text(
                0.5, -0.2, mus[1], transform=axes.transAxes, ha="center", va="top", color=GREY
            )
        for x, word, colour in ((0.0, "one\nexample", BLUE), (1.0, "another", VERMILLION)):
            canvas.axes[-1].text(
                x, 0.7, word, color=colour, transform=canvas.axes[-1].transAxes, fontsize=8.0,
                ha="right" if x else "left", va="center",
            )  # fmt: skip
        canvas.subplots_adjust(left=0.02, right=0.98, top=0.88, bottom=0.22, wspace=0.12)
    return canvas


def composed(steps: int) -> float:
    """mu of every iterate together."""
    return SHIFT * float(np.sqrt(steps))
