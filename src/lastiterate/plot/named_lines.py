"""Curves over one axis, each named."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lastiterate import _check
from lastiterate.bounds.bound import LineStyle
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.plot.style import FAINT, figure, heading, legends, plain_line_styles, scale, style
from lastiterate.plot.style import mark as named_mark

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
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
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
