"""Bok, Su and Altschuler 2024, Figures 1, 2, 4 and 6 to 10."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from lastiterate._numerics.arrays import Array
from lastiterate.accounting import account
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.published.bok_su_altschuler.estimates import limit
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.renyi import ZCDPProfile
from lastiterate.reproduce import runs
from lastiterate.reproduce.items import FigureItem
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_DELTA = 1e-5
_OURS, _THEIRS, _OTHER = "#1f5fa8", "#b5432a", "#7a7a7a"
_RATES = np.linspace(0.0, 1.0, 401)


def _tradeoff(axes: Any, mu: float, **style: Any) -> None:
    with np.errstate(divide="ignore"):
        axes.plot(_RATES, ndtr(ndtri(1.0 - _RATES) - mu), **style)


def _square(axes: Any) -> None:
    axes.plot([0, 1], [1, 0], color="0.85", linewidth=1.0, zorder=0)
    axes.set(xlabel="false-positive rate", ylabel="false-negative rate", xlim=(0, 1), ylim=(0, 1))


def _two_panels(
    canvas: Any,
    run_of: Callable[[int], TrainingRun],
    counts: Sequence[int],
    shown: int,
    composition: str,
    bound: str | None = None,
    what: str = "steps",
) -> tuple[Any, Array, Array]:
    """Trade-off curves after `shown`, and epsilon against the number of steps or epochs."""
    left, right = canvas.subplots(1, 2)

    def mus(count: int) -> tuple[float, float]:
        run = run_of(count)
        composed = CATALOGUE[f"published/bok-su-altschuler/{composition}"].profile(run).gdp()
        if bound is None:
            return composed, account(run).gdp()
        statement = CATALOGUE[f"published/bok-su-altschuler/{bound}"]
        last = composed if statement.unmet(run) else statement.profile(run).gdp()
        return composed, min(last, composed)

    composed, last = mus(shown)
    _tradeoff(left, composed, color=_THEIRS, label="composition")
    _tradeoff(left, last, color=_OURS, label="last iterate")
    _square(left)
    left.set_title(f"{shown} {what}", fontsize=9)
    left.legend()
    pairs = np.array([mus(count) for count in counts])
    epsilons = np.array([[GaussianProfile(mu).epsilon(_DELTA) for mu in row] for row in pairs])
    right.plot(counts, epsilons[:, 0], color=_THEIRS, marker="o", markersize=3, label="composition")
    right.plot(counts, epsilons[:, 1], color=_OURS, marker="o", markersize=3, label="last iterate")
    right.set(xlabel=what, ylabel="epsilon at delta = 1e-5", xscale="log", ylim=(0, None))
    return right, np.asarray(counts), pairs[:, 1]


def figure_1(canvas: Any) -> None:
    axes, counts, mus = _two_panels(
        canvas,
        lambda steps: runs.contracting(contraction=0.95, steps=steps, ratio=0.1),
        (10, 20, 40, 80, 160),
        160,
        "full-batch-composition",
    )
    renyi = [ZCDPProfile(mu * mu / 2).epsilon(_DELTA) for mu in mus]
    axes.plot(counts, renyi, color=_OTHER, linestyle="--", label="the same, through Renyi")
    axes.legend()


def figure_2(canvas: Any) -> None:
    axes = canvas.subplots()
    for mu, shade in ((0.5, 0.75), (1.0, 0.5), (2.0, 0.25), (4.0, 0.0)):
        _tradeoff(axes, mu, color=str(shade), label=f"G({mu:g})")
    _square(axes)
    axes.legend()


def _subsampled(p: float, mu: float) -> Array:
    """C_p(G(mu)): the convex envelope of the two one-sided curves."""
    with np.errstate(divide="ignore"):
        one = p * ndtr(ndtri(1.0 - _RATES) - mu) + (1.0 - p) * (1.0 - _RATES)
    other = np.interp(_RATES, one[::-1], _RATES[::-1])
    lower = np.minimum(one, other)
    hull: list[int] = []
    for i in range(_RATES.size):
        while len(hull) > 1 and _above(lower, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    return np.interp(_RATES, _RATES[hull], lower[hull])


def _above(y: Array, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (c - a) >= (y[c] - y[a]) * (b - a))


def figure_4(canvas: Any) -> None:
    axes, p, mu = canvas.subplots(), 0.25, 2.5
    z = np.linspace(-9.0, 9.0, 2001)
    for lam, dash in ((0.0, ":"), (0.5, "--"), (1.0, "-.")):
        alpha = 1 - (1 - p) * ndtr(z) - p * ndtr(z + (1 - lam) * mu)
        beta = (1 - p) * ndtr(z) + p * ndtr(z - lam * mu)
        axes.plot(alpha, beta, color=_OTHER, linestyle=dash, label=f"one step, lambda = {lam:g}")
    axes.plot(_RATES, _subsampled(p, mu), color=_OURS, label="C_p(G(2.5)), p = 1/4")
    _square(axes)
    axes.legend()


def figure_6(canvas: Any) -> None:
    counts = np.unique(np.geomspace(1, 1000, 40).astype(int)).tolist()
    axes, *_ = _two_panels(
        canvas,
        lambda steps: runs.contracting(contraction=0.99, steps=steps, ratio=0.1),
        counts, 1000, "full-batch-composition",
    )  # fmt: skip
    axes.legend()


def figure_7(canvas: Any) -> None:
    counts = np.unique(np.geomspace(1, 1000, 40).astype(int)).tolist()
    axes, *_ = _two_panels(
        canvas,
        lambda steps: runs.contracting(
            contraction=1.0, steps=steps, ratio=0.5 / 8, noise_std=8.0, step_size=0.1,
            domain=Ball(1.0),
        ),
        counts, 1000, "full-batch-composition", "full-batch-bounded",
    )  # fmt: skip
    axes.legend()


def figure_8(canvas: Any) -> None:
    counts = np.unique(np.geomspace(1, 500, 40).astype(int)).tolist()
    axes, *_ = _two_panels(
        canvas,
        lambda epochs: runs.contracting(
            contraction=0.99, steps=20 * epochs, ratio=0.2, batches=20
        ),
        counts, 500, "cyclic-composition", what="epochs",
    )  # fmt: skip
    axes.legend()


def figure_9(canvas: Any) -> None:
    counts = np.unique(np.geomspace(1, 500, 40).astype(int)).tolist()
    axes, *_ = _two_panels(
        canvas,
        lambda epochs: runs.contracting(
            contraction=1.0, steps=20 * epochs, ratio=0.5 / 3, batches=20, noise_std=3.0,
            step_size=0.02, domain=Ball(1.0),
        ),
        counts, 500, "cyclic-composition", "cyclic-bounded", what="epochs",
    )  # fmt: skip
    axes.legend()


def figure_10(canvas: Any) -> None:
    """Limit theorems only: both curves are estimates."""
    shares, ratios, eta, sigma = (0.01, 0.02, 0.04), (0.25, 0.5, 1.0), 0.1, 3.0
    grid = canvas.subplots(3, 3, sharex=True, sharey=True)
    for i, p in enumerate(shares):
        for j, sensitivity in enumerate(ratios):
            r = sensitivity / sigma
            last = min(
                math.hypot(
                    math.sqrt(10) / (eta * sigma * math.sqrt(R)),
                    limit(2 * math.sqrt(10) / 3 * r, p, R),
                )
                for R in range(100, 5000, 100)
            )
            for steps, shade in ((5_000, "#e0a698"), (20_000, "#cc7560"), (80_000, _THEIRS)):
                label = f"composition, {steps:,} steps"
                _tradeoff(grid[i, j], limit(r, p, steps), color=shade, linestyle="--", label=label)
            _tradeoff(
                grid[i, j], last, color=_OURS, linestyle="--", label="last iterate, any number"
            )
            grid[i, j].set_title(f"b/n = {p:g}, L/b = {sensitivity:g}", fontsize=8)
    canvas.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    grid[2, 1].set_xlabel("false-positive rate")
    grid[1, 0].set_ylabel("false-negative rate")


_SMALL = (3.6, 3.2)
FIGURES = (
    FigureItem(
        "bsa-figure-1", "full batch, strongly convex", figure_1,
        ("Their curve of an earlier Renyi bound (Ye and Shokri, Theorem D.6) is not drawn.",),
    ),
    FigureItem("bsa-figure-2", "Gaussian trade-off curves", figure_2, size=_SMALL),
    FigureItem("bsa-figure-4", "one sampled step", figure_4, size=_SMALL),
    FigureItem("bsa-figure-6", "full batch, c = .99", figure_6),
    FigureItem("bsa-figure-7", "full batch on a bounded domain", figure_7),
    FigureItem("bsa-figure-8", "cyclic batches, c = .99, l = 20", figure_8),
    FigureItem("bsa-figure-9", "cyclic batches on a bounded domain", figure_9),
    FigureItem(
        "bsa-figure-10", "sampled batches on a bounded domain: estimates", figure_10,
        (
            "Both curves come from limit theorems and are estimates, not bounds.",
            "The text states D = 1 and sigma = 3; step size, batch shares and L/b are chosen here.",
        ),
        size=(7.2, 6.6),
    ),
)  # fmt: skip
