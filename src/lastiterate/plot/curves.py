"""The whole privacy profile: delta against epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from lastiterate._numerics import guards
from lastiterate._numerics.digits import up
from lastiterate.plot.attack import Drawable, named_profiles
from lastiterate.plot.labels import End, finish, mark
from lastiterate.plot.scales import scale
from lastiterate.plot.style import FAINT, INK, figure, heading, pens, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST = 1e-10
_POINTS = 241


def delta_by_epsilon(what: Drawable, *, delta: float = 1e-5) -> Figure:
    """delta of every bound at each epsilon, up to where the best falls below 1e-10.

    Parameters
    ----------
    what : PrivacyReport, PrivacyProfile or {name: PrivacyProfile}
        A report is drawn with every bound that applies.
    delta : float
        At which the least epsilon is marked.
    """
    profiles = named_profiles(what)
    guards.number("delta", delta, above=0.0, below=1.0)
    floor = min(_LEAST, delta * 1e-3)
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        # Until the first curve meets the floor, so that every one leaves through the right side.
        reach = min(profile.epsilon(floor) for profile in profiles.values())
        reach = reach if 0.0 < reach < math.inf else 1.0
        epsilons = np.linspace(0.0, reach, _POINTS)
        scale(axes, "x", epsilons.tolist(), logs=False)
        scale(axes, "y", [floor, 1.0], logs=True)
        ends = []
        for (name, profile), pen in zip(
            profiles.items(), pens(list(profiles)).values(), strict=True
        ):
            values = profile.deltas(epsilons)
            shown = np.where(values > 0.0, values, math.nan)
            axes.plot(epsilons, shown, color=pen.colour, linestyle=pen.dash)
            ends.append(End(float(values[-1]), name, pen))
        best = min(profile.epsilon(delta) for profile in profiles.values())
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
