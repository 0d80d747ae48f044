"""The look of every picture: colours that the colour-blind can tell apart, axes, one typeface.

The same figure gives the same bytes in a file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lastiterate import _check
from lastiterate._files import is_sealed, refuse_replacing, sealed, write_whole
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
from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2328"
FAINT = "#c9cdd3"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_DPI = 100  # at which pictures are laid out; files may have any
_MAX_LINE_LENGTH = 30  # characters
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
_RANGE_WORTH_LOGS = 15.0  # a smaller range is shown linearly
_MAX_TICKS = 8
_WITHIN_A_DECADE = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
Mark = tuple[float, str]
# No dates and no versions, so that the same picture is the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "lastiterate"},
    ".png": {"Software": "lastiterate"},
    ".pdf": {"CreationDate": None, "Creator": "lastiterate", "Producer": None},
}
# What comes after the end of a picture is not read.
_COMMENTS = {".svg": ("<!-- ", " -->"), ".png": ("", ""), ".pdf": ("%", "")}
_PIXELS_PER_INCH = 200


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
    "Mark",
    "as_svg",
    "check",
    "figure",
    "grid",
    "heading",
    "legends",
    "line_styles",
    "lines",
    "named_mark",
    "number",
    "plain_line_styles",
    "save",
    "scale",
    "style",
    "ticks_of_logs",
    "write_picture",
]


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
    """A style for each name: the library's bounds their own, others the next free one."""
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
    """A style for each name, solid first."""
    every = [LineStyle(colour, dash) for dash in DASHES for colour in PALETTE]
    return {name: every[i % len(every)] for i, name in enumerate(names)}


def heading(axes: Axes, text: str, *, marks: bool = False) -> None:
    """Write what the vertical axis shows above the axes, horizontally; above the marks if any."""
    axes.set_title(text, loc="left", pad=21.0 if marks else 9.0, fontweight="bold")


def grid(axes: Axes, axis: Literal["y", "both"] = "y") -> None:
    """Draw faint lines at the ticks, behind everything else."""
    axes.grid(axis=axis, color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


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
    if len(name.split("\n")[0]) <= _MAX_LINE_LENGTH or "/" not in name:
        return name
    family, condition = name.rsplit("/", 1)
    return f"{family}/\n{condition}"


def named_mark(axes: Axes, x: float, text: str) -> None:
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
    return found[:: math.ceil(len(found) / _MAX_TICKS)]


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
    wide = positive.size > 0 and positive.max() > _RANGE_WORTH_LOGS * positive.min()
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


def lines(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    *,
    across: str,
    up: str,
    line_styles: Mapping[str, LineStyle] | None = None,
    mark: Mark | None = None,
    undotted: Collection[str] = (),
) -> Figure:
    """Every curve over the same `x`; logarithmic where values span much.

    What is not finite is left out, and said so where a curve ends with it.

    Parameters
    ----------
    x : sequence of float
        Increasing.
    curves : {name: values at x}
        nan where there is none.
    across, up : str
        What the axes show.
    line_styles : {name: LineStyle}, optional
        How each is drawn.
    mark : (float, str), optional
        A point on the axis and its name; curves have a dot there, but for the `undotted`.
    """
    points = _check.numbers("x", x, at_least=-1e300).tolist()
    _check_curves(curves, len(points))
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        scale(axes, "x", points, whole=all(point.is_integer() for point in points))
        scale(axes, "y", [value for curve in curves.values() for value in curve])
        axes.set_xlabel(across, loc="right")
        heading(axes, up, marks=mark is not None)
        drawn = plain_line_styles(list(curves)) if line_styles is None else line_styles
        for name, values in curves.items():
            line_style = drawn[name]
            shown = [value if math.isfinite(value) else math.nan for value in values]
            alone = "o" if len(points) == 1 else ""
            axes.plot(
                points,
                shown,
                color=line_style.colour,
                linestyle=line_style.dash,
                marker=alone,
                label=_label(name, points, values),
            )
            if mark is not None and mark[0] in points and name not in undotted:
                here = shown[points.index(mark[0])]
                axes.plot([mark[0]], [here], "o", ms=4.5, color=line_style.colour, clip_on=False)
        if mark is not None:
            named_mark(axes, *mark)
        grid(axes)
        legends(canvas)
    return canvas


def _check_curves(curves: object, length: int) -> None:
    if not isinstance(curves, Mapping) or not curves:
        raise InvalidType("curves", curves, must_be="a dict of name and values")
    for name, values in curves.items():
        if len(values) != length:
            raise InvalidParameter(f"curves[{name!r}]", values, must_be=f"of length {length}")


def _label(name: str, points: Sequence[float], values: Sequence[float]) -> str | None:
    """The name of a curve; where its last value is before the others', with its x."""
    known = [k for k, value in enumerate(values) if not math.isnan(value)]
    if not known:
        return None
    if math.isinf(values[known[-1]]):
        return f"{name}\n(not finite)"
    ends_early = known[-1] < len(values) - 1
    return f"{name}\n(up to {points[known[-1]]:,g})" if ends_early else name


def save(figure: Figure, out: str | Path) -> list[Path]:
    """Write `out`.svg and `out`.png; or, if it ends in .svg, .png or .pdf, that file alone.

    The background of .png files is white, that of the others is left to the page.  A file that is
    there is replaced if it is a picture as `save` wrote it, and refused if it is anything else.
    """
    paths = check(out)
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    with style():
        for one in paths:
            ground = "white" if one.suffix == ".png" else "none"
            write_picture(figure, one, dpi=_PIXELS_PER_INCH, facecolor=ground)
    return paths


def write_picture(figure: Figure, path: Path, **settings: Any) -> None:
    """Write one file, by which we know later that it is ours; `settings` are of matplotlib."""
    refuse_replacing("out", path, is_sealed)
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], metadata=_METADATA[path.suffix], **settings)
    content = sealed(drawn.getvalue(), comment=_COMMENTS[path.suffix])
    write_whole("out", path, content, is_sealed)


def check(out: str | Path) -> list[Path]:
    """The files that `save` would write; an error if one of them holds anything else."""
    path = Path(out)
    paths = [path]
    if path.suffix not in _METADATA:
        if path.suffix or path.name in ("", ".."):
            must_be = (
                "a name without ending, for SVG and PNG, or one that ends in .svg, .png or .pdf"
            )
            raise InvalidParameter("out", str(out), must_be=must_be)
        paths = [path.with_suffix(kind) for kind in (".svg", ".png")]
    for one in paths:
        refuse_replacing("out", one, is_sealed)
    return paths


def as_svg(figure: Figure) -> str:
    """The picture as an SVG element, to be put into a page."""
    out = StringIO()
    with style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    start, end = text.find("<metadata>"), text.find("</metadata>")
    if end >= 0:
        text = text[:start] + text[end + len("</metadata>") :]
    return text[text.index("<svg") :]
