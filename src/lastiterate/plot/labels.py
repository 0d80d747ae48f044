"""Names at the ends of lines, moved apart as little as is needed for none to overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.optimize import isotonic_regression

from lastiterate._numerics.rounding import Array
from lastiterate.plot.style import DPI, INK, LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

_SPACING = 3.0  # pixels between labels
_STUB = 26.0  # pixels from the frame to a label
_EDGE = 8.0  # pixels around everything
_LONG = 30  # characters


@dataclass(frozen=True)
class End:
    """The height at which a line leaves the frame, its name and its style; `inf` is above all."""

    y: float
    name: str
    line_style: LineStyle


def spread(targets: Array, heights: Array, low: float, high: float) -> Array:
    """Centres as near to `targets` as the heights allow, in [low, high] if they all fit.

    The least sum of squared moves under a least distance between neighbours is an isotonic
    regression, once the distances are taken off.
    """
    order = np.argsort(targets, kind="stable")
    tall = heights[order]
    apart = np.concatenate([[0.0], np.cumsum((tall[1:] + tall[:-1]) / 2)])
    first, last = low + tall[0] / 2, high - tall[-1] / 2 - apart[-1]
    fitted = isotonic_regression(targets[order] - apart).x
    centres = np.empty(targets.size)
    centres[order] = np.clip(fitted, first, max(first, last)) + apart
    return centres


def finish(figure: Figure, panels: Sequence[tuple[Axes, Sequence[End]]]) -> None:
    """Name the lines' ends, and fit the frames to the names, numbers and titles around them."""
    texts = [[_text(axes, end) for end in ends] for axes, ends in panels]
    needed = max(_total_height(figure, column) for column in texts)
    room = 0.68 * figure.get_figheight() * DPI / len(panels)
    if needed > room:
        figure.set_figheight(figure.get_figheight() + (needed - room) * len(panels) / DPI)
    for _ in range(2):  # numbers on the axes may change with the frame, and the frame with them
        _fit(figure, [axes for axes, _ in panels], texts)
    for (axes, ends), column in zip(panels, texts, strict=True):
        _write_names(axes, ends, column)


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


def wrapped(name: str) -> str:
    """A long id in two lines."""
    if len(name.split("\n")[0]) <= _LONG or "/" not in name:
        return name
    family, condition = name.rsplit("/", 1)
    return f"{family}/\n{condition}"


def _text(axes: Axes, end: End) -> Text:
    return axes.text(
        1.0, 0.5, wrapped(end.name), transform=axes.transAxes, va="center", fontsize=8.5,
        linespacing=1.1,
    )  # fmt: skip


def _total_height(figure: Figure, column: Sequence[Text]) -> float:
    return math.fsum(_extent(figure, text).height + _SPACING for text in column)


def _extent(figure: Figure, artist: Any) -> Any:
    return artist.get_window_extent(_renderer(figure))


def _renderer(figure: Figure) -> Any:
    canvas: Any = figure.canvas  # that of Agg, which measures text
    return canvas.get_renderer()


def _fit(figure: Figure, frames: Sequence[Axes], texts: Sequence[Sequence[Text]]) -> None:
    renderer = _renderer(figure)
    for column in texts:
        for text in column:
            text.set_in_layout(False)
    boxes = [axes.bbox for axes in frames]
    tight = [axes.get_tightbbox(renderer) for axes in frames]
    width, height = figure.get_figwidth() * DPI, figure.get_figheight() * DPI
    left = max(box.x0 - t.x0 for box, t in zip(boxes, tight, strict=True) if t) + _EDGE
    over = max(t.x1 - box.x1 for box, t in zip(boxes, tight, strict=True) if t)
    names = [_extent(figure, text).width + _STUB for column in texts for text in column]
    right = max([over, *names]) + _EDGE
    aboves = [t.y1 - box.y1 if t else 0.0 for box, t in zip(boxes, tight, strict=True)]
    belows = [box.y0 - t.y0 if t else 0.0 for box, t in zip(boxes, tight, strict=True)]
    free = height - sum(aboves) - sum(belows) - _EDGE * (len(frames) + 1)
    each, top = free / len(frames), height - _EDGE
    for axes, above, below in zip(frames, aboves, belows, strict=True):
        bottom = top - above - each
        spanned = (width - left - right) / width
        axes.set_position((left / width, bottom / height, spanned, each / height))
        top = bottom - below - _EDGE


def _write_names(axes: Axes, ends: Sequence[End], column: Sequence[Text]) -> None:
    if not ends:
        return
    figure = cast("Figure", axes.figure)
    box = axes.bbox
    low, high = axes.get_ylim()
    targets = np.array(
        [
            axes.transData.transform((axes.get_xlim()[1], min(max(end.y, low), high)))[1]
            for end in ends
        ]
    )
    heights = np.array([_extent(figure, text).height + _SPACING for text in column])
    # A label may stick out of the frame by as much as numbers on the axis do.
    centres = spread(targets, heights, box.y0 - 10.0, box.y1 + 10.0)
    for end, text, target, centre in zip(ends, column, targets, centres, strict=True):
        text.set_position((1.0 + _STUB / box.width, (centre - box.y0) / box.height))
        _connect(
            axes, (target - box.y0) / box.height, (centre - box.y0) / box.height, end.line_style
        )


def _connect(axes: Axes, start: float, end: float, line_style: LineStyle) -> None:
    from matplotlib.lines import Line2D

    unit = 1.0 / axes.bbox.width
    across = [1.0 + 3 * unit, 1.0 + 9 * unit, 1.0 + (_STUB - 9) * unit, 1.0 + (_STUB - 4) * unit]
    axes.add_artist(
        Line2D(
            across,
            [start, start, end, end],
            transform=axes.transAxes,
            color=line_style.colour,
            linestyle="-",
            linewidth=1.0,
            clip_on=False,
            in_layout=False,
        )
    )
