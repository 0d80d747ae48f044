"""Curves over one axis, each named at its end."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.plot.labels import End, finish
from lastiterate.plot.labels import mark as named_mark
from lastiterate.plot.style import (
    FAINT,
    LineStyle,
    figure,
    heading,
    plain_line_styles,
    scale,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mark = tuple[float, str]


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
        ends = []
        for name, values in curves.items():
            line_style = drawn[name]
            shown = [value if math.isfinite(value) else math.nan for value in values]
            alone = "o" if len(points) == 1 else ""
            axes.plot(
                points, shown, color=line_style.colour, linestyle=line_style.dash, marker=alone
            )
            ends += _end(name, points, values, line_style)
            if mark is not None and mark[0] in points and name not in undotted:
                here = shown[points.index(mark[0])]
                axes.plot([mark[0]], [here], "o", ms=4.5, color=line_style.colour, clip_on=False)
        if mark is not None:
            named_mark(axes, *mark)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        finish(canvas, [(axes, ends)])
    return canvas


def _check_curves(curves: object, length: int) -> None:
    if not isinstance(curves, Mapping) or not curves:
        raise InvalidType("curves", curves, must_be="a dict of name and values")
    for name, values in curves.items():
        if len(values) != length:
            raise InvalidParameter(f"curves[{name!r}]", values, must_be=f"of length {length}")


def _end(
    name: str, points: Sequence[float], values: Sequence[float], line_style: LineStyle
) -> list[End]:
    """The name of a curve at its last value; where that is before the others', with its x."""
    known = [k for k, value in enumerate(values) if not math.isnan(value)]
    if not known:
        return []
    last = values[known[-1]]
    if math.isinf(last):
        return [End(last, f"{name}\n(not finite)", line_style)]
    ends_early = known[-1] < len(values) - 1
    return [
        End(last, f"{name}\n(up to {points[known[-1]]:,g})" if ends_early else name, line_style)
    ]
