"""How every picture looks: colours that the colour-blind can tell apart, one typeface, no boxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.line_style import (
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
    "line_styles",
    "plain_line_styles",
    "style",
]

INK = "#1f2328"
FAINT = "#c9cdd3"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)

DPI = 100  # at which pictures are laid out; files may have any
_RC: Any = {
    "figure.dpi": DPI,
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
