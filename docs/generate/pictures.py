"""The pages' pictures, drawn when they are built."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lastiterate as li
from lastiterate import plot
from lastiterate._numerics.rounding import Array
from lastiterate.plot.style import as_svg
from lastiterate.bounds.bound import BLUE
from lastiterate.bounds.bound import GREEN
from lastiterate.bounds.bound import GREY
from lastiterate.bounds.bound import VERMILLION
from lastiterate.plot.style import figure
from lastiterate.plot.style import style
from lastiterate.train.noise import BITS
from lastiterate.train.noise import Randomness, SeededBits

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
        "transport": transport(),
        "precision-attack": precision_attack(),
    }
    return {f"{name}.svg": as_svg(one) for name, one in drawn.items()}


def precision_attack() -> Figure:
    """Trailing zero bits of small coordinates, for raw floats and on the grid of the noise."""
    moved, noise, count = 2.0**-7, 1.0, 150_000
    raw, source = np.random.default_rng(0), Randomness(SeededBits(0))
    unit = noise * 2.0**-BITS

    def on_grid(shift: float) -> Array:
        whole = np.rint(shift / unit) + source.rounded_normals((count,), BITS)
        return np.asarray(unit * whole)

    with style():
        canvas = figure(7.2, 2.8)
        ways = (
            ("floats", lambda shift: shift + noise * raw.normal(size=count)),
            ("as published here", on_grid),
        )
        for axes, (title, publish) in zip(canvas.subplots(1, 2, sharey=True), ways, strict=True):
            for shift, colour, word in (
                (0.0, BLUE, "0 with noise"),
                (moved, VERMILLION, "c with noise"),
            ):
                x = np.abs(publish(shift))
                near = x[(x < moved / 2) & (x > moved * 1e-3)]
                bits = near.view(np.int64) & ((1 << 52) - 1)
                zeros = np.frexp((bits & -bits).astype(float))[1] - 1
                jitter = raw.uniform(-0.35, 0.35, near.size)
                axes.plot(near / moved, zeros + jitter, ".", color=colour, ms=2.5, label=word)
            axes.set_xscale("log")
            axes.set_title(title, fontweight="bold")
            axes.set_xlabel("size of the noisy value, in units of c")
            axes.set_ylim(-1, 35)
        canvas.axes[0].set_ylabel("zero bits at the end")
        canvas.axes[0].legend(loc="upper right", frameon=False)
        canvas.subplots_adjust(left=0.09, right=0.98, top=0.88, bottom=0.2, wspace=0.08)
    return canvas


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


def transport() -> Figure:
    """Transport of mass between the positions of the last epoch."""
    receiving, separate, joint = range(14), range(14, 20), range(20, 24)
    with style():
        canvas = figure(7.2, 2.6)
        axes = canvas.subplots()
        kinds = (
            (receiving, BLUE, "receiving positions"),
            (separate, GREEN, "transported one by one"),
            (joint, VERMILLION, "jointly"),
        )
        for positions, colour, word in kinds:
            left, width = positions[0], len(positions)
            axes.bar(positions, 1.0, width=0.86, align="edge", color=colour, alpha=0.75)
            axes.text(left + width / 2, -0.15, word, ha="center", va="top", color=colour,
                      fontweight="bold", fontsize=8.0)  # fmt: skip
        for start, end in ((14.4, 4.4), (16.4, 7.4), (18.4, 10.4)):
            _arrow(axes, (start, 1.05), (end, 1.05), GREEN, 0.45)
        axes.text(8.0, 3.2, "each is compared on its own\nwith a receiving position",
                  ha="center", va="center", color=GREEN, fontsize=8.0)  # fmt: skip
        for start in (20.4, 22.4):
            _arrow(axes, (start, 1.05), (start - 14.0, 1.05), VERMILLION, 0.3)
        words = "all are compared together\nwith a receiving position"
        axes.text(19.0, 3.2, words, ha="center", va="center", color=VERMILLION, fontsize=8.0)
        for number, (left, right) in enumerate(((20.0, 21.9), (22.0, 22.9), (23.0, 23.9))):
            axes.plot([left, left, right, right], [-0.85, -1.1, -1.1, -0.85], color=VERMILLION)
            axes.text((left + right) / 2, -1.2, f"{3 - number}", ha="center", va="top",
                      color=VERMILLION, fontsize=8.0)  # fmt: skip
        axes.text(19.6, -1.0, "windows of noise of their own", ha="right", va="center",
                  color=VERMILLION, fontsize=8.0)  # fmt: skip
        axes.text(0.0, -1.0, "batches of the last epoch, the last one on the right", va="center",
                  color=GREY, fontsize=8.0)  # fmt: skip
        axes.set(xlim=(-0.2, 24.2), ylim=(-1.8, 3.7), xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(False)
        canvas.subplots_adjust(left=0.01, right=0.99, top=0.99, bottom=0.01)
    return canvas


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, bend: float
) -> None:
    style = {"arrowstyle": "->", "color": colour, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
