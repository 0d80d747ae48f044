"""Axes whose numbers can be read: 1,000 rather than 10^3, and a few of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from lastiterate._numerics.rounding import up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
