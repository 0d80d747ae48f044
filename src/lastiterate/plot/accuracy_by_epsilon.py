"""A plot of accuracy against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate.errors import InvalidType
from lastiterate.plot.style import FAINT, figure, heading, legends, plain_line_styles, scale, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Results = Mapping[str, Mapping[float, Sequence[float]]]


def accuracy_by_epsilon(results: Results, *, measure: str = "accuracy") -> Figure:
    """Each method's mean over seeds, the seeds as faint dots and two standard errors as a band.

    Parameters
    ----------
    results : mapping
        ``{method: {epsilon: [accuracy of each seed]}}``; epsilons may be text, as in JSON.
    measure : str
        What the numbers are.
    """
    table = _checked(results)
    with style():
        canvas = figure()
        axes = canvas.add_subplot()
        scale(axes, "x", [epsilon for rows in table.values() for epsilon in rows], logs=True)
        lows, highs = [], []
        for name, line_style in plain_line_styles(list(table)).items():
            rows = table[name]
            epsilons = sorted(rows)
            means = np.array([np.mean(rows[epsilon]) for epsilon in epsilons])
            errors = np.array(
                [2.0 * np.std(rows[e], ddof=1) / len(rows[e]) ** 0.5 if len(rows[e]) > 1 else 0.0
                 for e in epsilons]
            )  # fmt: skip
            axes.fill_between(
                epsilons,
                means - errors,
                means + errors,
                color=line_style.colour,
                alpha=0.18,
                linewidth=0,
            )
            axes.plot(
                epsilons,
                means,
                color=line_style.colour,
                linestyle=line_style.dash,
                marker="o",
                ms=3.5,
                label=name,
            )
            seeds = [(e, x) for e in epsilons for x in rows[e]]
            axes.plot(
                *zip(*seeds, strict=True),
                color=line_style.colour,
                alpha=0.35,
                ls="",
                marker=".",
                ms=3,
            )
            lows += [x for _, x in seeds] + (means - errors).tolist()
            highs += [x for _, x in seeds] + (means + errors).tolist()
        room = 0.06 * (max(highs) - min(lows)) or 0.05
        axes.set_ylim(min(lows) - room, max(highs) + room)
        axes.set_xlabel("epsilon (dots: seeds; bands: two standard errors)", loc="right")
        heading(axes, measure)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.margins(x=0.02)
        for line in axes.lines:
            line.set_clip_on(False)  # or dots on the edge are halved
        legends(canvas)
    return canvas


def _checked(results: object) -> dict[str, dict[float, list[float]]]:
    must_be = "{method: {epsilon: [accuracies]}}, with at least one of each"
    if not isinstance(results, Mapping) or not results:
        raise InvalidType("results", results, must_be=must_be)
    table: dict[str, dict[float, list[float]]] = {}
    for name, rows in results.items():
        if not isinstance(rows, Mapping) or not rows:
            raise InvalidType(f"results[{name!r}]", rows, must_be=must_be)
        table[str(name)] = {
            _epsilon(epsilon): _values(f"results[{name!r}][{epsilon!r}]", values)
            for epsilon, values in rows.items()
        }
    return table


def _epsilon(epsilon: object) -> float:
    if isinstance(epsilon, str):
        try:
            epsilon = float(epsilon)
        except ValueError:
            raise InvalidType("epsilon", epsilon, must_be="a number in (0, inf)") from None
    return _check.number("epsilon", epsilon, above=0.0)


def _values(name: str, values: object) -> list[float]:
    return [float(x) for x in _check.numbers(name, values, at_least=-1e300)]
