"""The look of every picture: colours that the colour-blind can tell apart, axes, one typeface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lastiterate._numerics.rounding import up
from lastiterate.bounds.bound import (
    BLUE,
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    LineStyle,
)
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLUE",
    "DASHES",
    "FAINT",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PALETTE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "LineStyle",
    "figure",
    "heading",
    "legends",
    "line_styles",
    "named_mark",
    "plain_line_styles",
    "style",
]

INK = "#1f2328"
FAINT = "#c9cdd3"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)

_DPI = 100  # at which pictures are laid out; files may have any
_LONG = 30  # characters
_RC: Any = {
    "figure.dpi": _DPI,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "path",
    "svg.hashsalt": "lastiterate",
}


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's defaults and this style, whatever the caller's settings are."""
    try:
        from matplotlib import rc_context, rcdefaults, rcParams
    except ImportError:
        raise MissingExtra("drawing", "matplotlib", extra="plot") from None
    with rc_context():
        rcdefaults()
        rcParams.update(_RC)
        yield


def figure(width: float = 7.2, height: float = 3.9) -> Figure:
    """An empty figure, in inches; it belongs to no window and to no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as NewFigure

    made = NewFigure(figsize=(width, height))
    FigureCanvasAgg(made)
    return made


def line_styles(names: list[str]) -> dict[str, LineStyle]:
    """One for each: the library's bounds their own, others the next free one."""
    own = {name: RECORDS[name].line_style for name in names if name in RECORDS}
    found = {name: line_style for name, line_style in own.items() if line_style is not None}
    taken = set(found.values())
    free = (
        LineStyle(c, d) for d in (*DASHES[1:], "-") for c in PALETTE if LineStyle(c, d) not in taken
    )
    for name in names:
        if name not in found:
            found[name] = next(free, LineStyle(GREY, ":"))
    return found


def plain_line_styles(names: list[str]) -> dict[str, LineStyle]:
    """One for each of any names, solid first."""
    every = [LineStyle(colour, dash) for dash in DASHES for colour in PALETTE]
    return {name: every[i % len(every)] for i, name in enumerate(names)}


def heading(axes: Axes, text: str, *, marks: bool = False) -> None:
    """Write what the vertical axis shows above the axes, horizontally; above the marks if any."""
    axes.set_title(text, loc="left", pad=21.0 if marks else 9.0, fontweight="bold")


def legends(canvas: Figure) -> None:
    """Name the labelled lines beside each frame, from the highest end of a line to the lowest."""
    names = []
    for axes in canvas.axes:
        named = zip(*axes.get_legend_handles_labels(), strict=True)
        ordered = sorted(named, key=lambda one: -_last_height(one[0]))
        legend = axes.legend(
            [handle for handle, _ in ordered],
            [_in_lines(name) for _, name in ordered],
            loc="upper left",
            bbox_to_anchor=(1.03, 1.0),
            borderaxespad=0.0,
        )
        names.append(legend)
    canvas.set_layout_engine("constrained")
    canvas.draw_without_rendering()
    beyond = [one.get_window_extent().height - one.axes.bbox.height for one in names]
    if max(beyond) > 0.0:
        canvas.set_figheight(canvas.get_figheight() + len(names) * max(beyond) / _DPI)


def _last_height(handle: Any) -> float:
    """The height at which a line ends; one that leaves the frame is above all others."""
    if not hasattr(handle, "get_ydata"):
        return 0.0  # a band
    heights = np.asarray(handle.get_ydata(), dtype=float)
    return float(heights[np.isfinite(heights)][-1]) if np.isfinite(heights).any() else math.inf


def _in_lines(name: str) -> str:
    """A long id in two lines."""
    if len(name.split("\n")[0]) <= _LONG or "/" not in name:
        return name
    family, condition = name.rsplit("/", 1)
    return f"{family}/\n{condition}"


def mark(axes: Axes, x: float, text: str) -> None:
    """A dotted line at x, named above the frame, the name kept inside of it."""
    low, high = axes.get_xlim()
    log = axes.get_xscale() == "log"
    share = math.log(x / low) / math.log(high / low) if log else (x - low) / (high - low)
    axes.axvline(x, color=INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    side = "left" if share < 0.25 else "right" if share > 0.75 else "center"
    axes.annotate(
        text,
        (min(max(share, 0.0), 1.0), 1.0),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=8.5,
    )


_WORTH_LOGS = 15.0  # a smaller range is shown linearly
_MOST_TICKS = 8
_WITHIN_A_DECADE = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


def number(value: float, _position: int | None = None) -> str:
    """1,000, 0.05, or a power of ten where digits would have to be counted."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}" if abs(value) < 1e5 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    mantissa = f"{float(mantissa):g}"
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa}\times {power}$"


def ticks_of_logs(low: float, high: float) -> list[float]:
    """Between two and eight round numbers in [low, high], which spans at least a decade."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    found: list[float] = []
    for within in _WITHIN_A_DECADE:
        every = [m * 10.0**k for k in range(first, last + 1) for m in within]
        found = [tick for tick in every if low <= up(tick, 1e-9) and tick <= up(high, 1e-9)]
        if len(found) >= 4:
            break
    # An exact 1 in every stride, so that what is kept is evenly spaced.
    return found[:: math.ceil(len(found) / _MOST_TICKS)]


def scale(
    axes: Axes,
    which: Literal["x", "y"],
    values: Sequence[float],
    *,
    logs: bool | None = None,
    whole: bool = False,
) -> bool:
    """Fit the axis to the finite values, by logarithms where they span much; whether it did."""
    data = np.asarray(values, dtype=float)
    data = data[np.isfinite(data)]
    positive = data[data > 0.0]
    axis = axes.xaxis if which == "x" else axes.yaxis
    limit = axes.set_xlim if which == "x" else axes.set_ylim
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axis.set_major_formatter(FuncFormatter(number))
    wide = positive.size > 0 and positive.max() > _WORTH_LOGS * positive.min()
    if wide if logs is None else logs and positive.size > 0 and positive.max() > positive.min():
        low, high = float(positive.min()), float(positive.max())
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_formatter(FuncFormatter(number))
        room = (high / low) ** 0.04 if which == "y" else 1.0
        axis.set_major_locator(FixedLocator(ticks_of_logs(low / room, high * room)))
        axis.set_minor_locator(NullLocator())
        limit(low / room, high * room)
        return True
    axis.set_major_locator(
        MaxNLocator(5 if which == "y" else 6, steps=[1, 2, 2.5, 5, 10], integer=whole)
    )
    if which == "x" and data.size and data.max() > data.min():
        limit(float(data.min()), float(data.max()))
    else:
        top = float(data.max()) if data.size and data.max() > 0.0 else 1.0
        limit(0.0, 1.06 * top)
    return False
