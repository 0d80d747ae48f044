"""Plots of privacy profiles: the trade-off curve of attackers, and delta against epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lastiterate import _check
from lastiterate._display import up
from lastiterate._numerics.rounding import Array
from lastiterate.bounds.bound import GREY
from lastiterate.errors import InvalidType
from lastiterate.plot.style import (
    FAINT,
    INK,
    figure,
    heading,
    legends,
    line_styles,
    mark,
    scale,
    style,
)
from lastiterate.privacy_report import PrivacyReport
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile, least_misses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RATES = np.concatenate([np.geomspace(1e-5, 0.02, 80), np.linspace(0.021, 0.5, 160)])
_EPSILONS = np.concatenate(
    [
        [0.0],
        np.geomspace(1e-4, 0.02, 60),
        np.linspace(0.021, 12.0, 400),
        np.geomspace(12.1, 600, 80),
    ]
)
Drawable = PrivacyReport | PrivacyProfile | Mapping[str, PrivacyProfile]


def tradeoff(what: Drawable, *, references: tuple[float, ...] = (0.5, 1.0, 2.0)) -> Figure:
    """The least miss rate of any attacker with each false-alarm rate up to one half.

    Curves are symmetric, so the other half says the same.  Every curve is drawn on the safe
    side: at or below the true one.

    Parameters
    ----------
    what : PrivacyReport, PrivacyProfile or {name: PrivacyProfile}
        A report is drawn with every bound that applies.
    references : tuple of float
        Gaussian mechanisms to compare with, by their mu.
    """
    profiles = named_profiles(what)
    mus = [_check.number("references", mu, at_least=0.0) for mu in references]
    with style():
        canvas = figure(7.2, 4.6)
        axes = canvas.add_subplot()
        axes.set(xlim=(0.0, 0.5), ylim=(0.0, 1.0))
        rates = np.concatenate([[0.0], _RATES])
        dotted, dashed = (0, (1, 1.5)), (0, (3, 2))
        faint: Any = {"color": GREY, "linewidth": 0.9}
        axes.plot(rates, 1.0 - rates, linestyle=dotted, label="nothing learnt", **faint)
        for mu in mus:
            values = [1.0, *map(GaussianProfile(mu).tradeoff, _RATES.tolist())]
            axes.plot(rates, values, linestyle=dashed, label=f"Gaussian, mu = {mu:g}", **faint)
        drawn = line_styles(list(profiles))
        for name, profile in profiles.items():
            line_style = drawn[name]
            values_of = tradeoff_curve(profile, rates)
            looks: Any = {"color": line_style.colour, "linestyle": line_style.dash, "label": name}
            axes.plot(rates, values_of, **looks)
        axes.set_xlabel("false-positive rate", loc="right")
        heading(axes, "least false-negative rate of any attacker")
        axes.grid(color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        legends(canvas)
    return canvas


def tradeoff_curve(profile: PrivacyProfile, rates: Array) -> Array:
    """The trade-off curve at all rates, from one evaluation of the delta curve.

    Every epsilon gives a valid lower bound, so a grid of them errs on the safe side.
    """
    allowed = least_misses(rates[:, None], _EPSILONS, profile.deltas(_EPSILONS))
    return np.asarray(np.clip(allowed.max(axis=1), 0.0, 1.0))


def named_profiles(what: Drawable) -> dict[str, PrivacyProfile]:
    """The profiles to draw, by name."""
    if isinstance(what, PrivacyReport):
        return dict(what.all)
    if isinstance(what, PrivacyProfile):
        mu = what.gdp()
        return {f"mu = {mu:.3g}" if math.isfinite(mu) else type(what).__name__: what}
    must_be = "a PrivacyReport, a PrivacyProfile or a dict of name and PrivacyProfile"
    if not isinstance(what, Mapping) or not what:
        raise InvalidType("what", what, must_be=must_be)
    for name, profile in what.items():
        if not isinstance(name, str) or not isinstance(profile, PrivacyProfile):
            raise InvalidType("what", what, must_be=must_be)
    return dict(what)


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
        drawn = line_styles(list(profiles))
        for name, profile in profiles.items():
            line_style = drawn[name]
            values = profile.deltas(epsilons)
            shown = np.where(values > 0.0, values, math.nan)
            looks: Any = {"color": line_style.colour, "linestyle": line_style.dash, "label": name}
            axes.plot(epsilons, shown, **looks)
        if best <= reach:
            axes.plot([0.0, best], [delta, delta], color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
            axes.plot([best], [delta], "o", ms=5, color=INK, clip_on=False)
            mark(axes, best, f"epsilon = {up(best)} at delta = {delta:g}")
        axes.set_xlabel("epsilon", loc="right")
        heading(axes, "delta", marks=True)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        legends(canvas)
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
