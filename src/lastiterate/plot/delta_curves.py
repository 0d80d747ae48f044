"""The whole privacy profile: delta against epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate._digits import up
from lastiterate.plot.attack import Drawable, named_profiles
from lastiterate.plot.labels import End, finish, mark
from lastiterate.plot.scales import scale
from lastiterate.plot.style import FAINT, INK, figure, heading, line_styles, style
from lastiterate.profile.privacy_profile import PrivacyProfile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DECADES = 5  # below the delta that is marked
_FURTHEST = 4.0  # in epsilons at that delta
_LEAST = 1e-300
_POINTS = 241


def delta_by_epsilon(what: Drawable, *, delta: float = 1e-5) -> Figure:
    """delta of every bound at each epsilon, up to where the best is far below `delta`.

    Parameters
    ----------
    what : PrivacyReport, PrivacyProfile or {name: PrivacyProfile}
        A report is drawn with every bound that applies.
    delta : float
        At which the least epsilon is marked.
    """
    profiles = named_profiles(what)
    _check.number("delta", delta, above=_LEAST, below=1.0)
    best = min(profile.epsilon(delta) for profile in profiles.values())
    floor, reach = _frame(list(profiles.values()), delta, best)
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        epsilons = np.linspace(0.0, reach, _POINTS)
        scale(axes, "x", epsilons.tolist(), logs=False)
        scale(axes, "y", [floor, 1.0], logs=True)
        ends = []
        drawn = line_styles(list(profiles))
        for name, profile in profiles.items():
            line_style = drawn[name]
            values = profile.deltas(epsilons)
            shown = np.where(values > 0.0, values, math.nan)
            axes.plot(epsilons, shown, color=line_style.colour, linestyle=line_style.dash)
            ends.append(End(float(values[-1]), name, line_style))
        if best <= reach:
            axes.plot([0.0, best], [delta, delta], color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
            axes.plot([best], [delta], "o", ms=5, color=INK, clip_on=False)
            mark(axes, best, f"epsilon = {up(best)} at delta = {delta:g}")
        axes.set_xlabel("epsilon", loc="right")
        heading(axes, "delta", marks=True)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        finish(canvas, [(axes, ends)])
    return canvas


def _frame(profiles: list[PrivacyProfile], delta: float, best: float) -> tuple[float, float]:
    """The least delta and the largest epsilon to show.

    Epsilon ends where the first curve meets the least delta, so that every curve leaves
    through the right side.  Curves that come to rest above it are given a higher one.
    """
    if not 0.0 < best < math.inf:
        return max(delta * 10.0**-_DECADES, _LEAST), 1.0
    for decade in range(_DECADES, 0, -1):
        floor = max(delta * 10.0**-decade, _LEAST)
        reach = min(profile.epsilon(floor) for profile in profiles)
        if reach <= _FURTHEST * best:
            return floor, reach
    return max(delta / 10.0, _LEAST), 2.0 * best
