"""Figures of the papers in Renyi divergences."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lastiterate.accounting import account
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.published.sampled_gaussian import sampled_gaussian
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.reproduce import runs
from lastiterate.reproduce.items import FigureItem
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import Cyclic, ShuffledOnce
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import Ball, TrainingRun

_BLUE, _RED, _GREEN, _GREY = "#1f5fa8", "#b5432a", "#3a7d44", "#7a7a7a"
_SMALL_SIZE = (4.2, 3.2)


def _profile_of(what: str, run: TrainingRun) -> PrivacyProfile:
    return CATALOGUE[f"published/{what}"].profile(run)


def _epochs(last: int) -> list[int]:
    return [int(k) for k in np.unique(np.geomspace(1, last, 40).astype(int))]


def balle_in_epochs(run: TrainingRun, position: int) -> float:
    """The divergence over the order by Balle et al. 2019, Theorem 5, composed over epochs.

    One pass costs r^2/2 in the last batch and r^2 c^(m+1)/(2 m) in one with m batches after it,
    with c^2 = 1 - 2 eta beta lambda/(beta + lambda).
    """
    M, m = run.loss.smoothness, run.loss.strong_convexity
    assert M is not None
    length = run.batches.batches_per_epoch
    left = length - 1 - position
    r = run.sensitivity / (run.batches.batch_size * float(np.max(run.noise_std)))
    square = 1.0 - 2.0 * float(np.max(run.step_size)) * M * m / (M + m)
    one = 1.0 if left == 0 else square ** ((left + 1) / 2.0) / left
    return run.steps // length * r * r / 2.0 * one


def ye_shokri_1(canvas: Any) -> None:
    epochs = _epochs(200)
    for axes, order in zip(canvas.subplots(1, 2, sharey=True), (10.0, 15.0), strict=True):
        cyclic = [runs.ye_shokri_example(k, Cyclic) for k in epochs]
        by_position = CATALOGUE["published/ye-shokri/fixed-order"].by_position
        assert by_position is not None
        rows = [by_position(run) for run in cyclic]
        for position, colour, name in ((0, _BLUE, "first"), (24, _GREEN, "last")):
            values = [row[position].renyi(order) for row in rows]
            axes.plot(epochs, values, color=colour, label=f"{name} batch")
            others = [order * balle_in_epochs(run, position) for run in cyclic]
            label = f"Balle et al. 2019 and composition, {name} batch"
            axes.plot(epochs, others, color=colour, linestyle="--", linewidth=1.0, label=label)
        naive = [_profile_of("ye-shokri/naive", run).renyi(order) for run in cyclic]
        axes.plot(epochs, naive, color=_RED, linewidth=1.0, label="naive")
        ours = [account(run).renyi(order) for run in cyclic]
        axes.plot(epochs, ours, color="black", linestyle=":", label="shifts, last batch")
        axes.set(xlabel="epochs", title=f"order {order:g}", yscale="log", xscale="log")
    canvas.axes[0].set_ylabel("Renyi divergence")
    canvas.legend(
        *canvas.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7
    )


def ye_shokri_2(canvas: Any) -> None:
    epochs = _epochs(200)
    cyclic = [runs.ye_shokri_example(k, Cyclic) for k in epochs]
    rules: tuple[tuple[type[Any], str], ...] = (
        (ShuffledOnce, "shuffled"),
        (SampledWithoutReplacement, "sampled"),
    )
    for axes, (rule, what) in zip(canvas.subplots(1, 2, sharey=True), rules, strict=True):
        for order, colour in ((10.0, _BLUE), (15.0, _GREEN)):
            values = [
                _profile_of(f"ye-shokri/{what}", runs.ye_shokri_example(k, rule)).renyi(order)
                for k in epochs
            ]
            axes.plot(epochs, values, color=colour, label=f"{what}, order {order:g}")
            last = [_profile_of("ye-shokri/fixed-order", run).renyi(order) for run in cyclic]
            axes.plot(epochs, last, color=colour, linestyle="--", linewidth=1.0, label="last batch")
            # b/n alpha eta S^2/(4 sigma^2 b^2) K, their approximation of composition.
            composed = [2 / 50 * order * 0.02 * 16 / (4 * 4 * 4) * k for k in epochs]
            axes.plot(epochs, composed, color=colour, linestyle=":", linewidth=1.0,
                      label="composition (approximate)")  # fmt: skip
        axes.set(xlabel="epochs", xscale="log", yscale="log", title=what)
        axes.legend(fontsize=6.5)
    canvas.axes[0].set_ylabel("Renyi divergence")


def chien_li_1(canvas: Any) -> None:
    steps: Sequence[int] = list(range(1, 101, 3))
    losses = {
        "non-convex": (Loss(smoothness=1.0, lipschitz=2.0, convex=False), _BLUE),
        "convex": (Loss(smoothness=1.0, lipschitz=2.0), _RED),
        "strongly convex": (Loss(smoothness=1.0, lipschitz=2.0, strong_convexity=1.0), _GREEN),
    }
    left, right = canvas.subplots(1, 2)
    for name, (loss, colour) in losses.items():
        values = [
            _profile_of("chien-li/smooth", runs.chien_li_example(T, loss)).renyi(1.0) for T in steps
        ]
        left.plot(steps, values, color=colour, label=name)
    s = 2 * 0.1 * 2 / 5
    left.plot(
        steps, [T * s * s / 2 for T in steps], color=_GREY, linestyle="--", label="composition"
    )
    left.axhline(0.5, color=_GREY, linestyle=":", label="output perturbation")
    left.set(xlabel="steps", ylabel="divergence / order", ylim=(0, 0.55))
    left.legend()
    strong = losses["strongly convex"][0]
    names = {
        "Chien and Li": ("chien-li/smooth", _GREEN),
        "Altschuler and Talwar, Proposition 5.6": (
            "altschuler-talwar/bounded-strongly-convex", _RED,
        ),
        "Ye and Shokri, Theorem D.6": ("ye-shokri/full-batch", _BLUE),
    }  # fmt: skip
    for name, (what, colour) in names.items():
        values = [_profile_of(what, runs.chien_li_example(T, strong)).renyi(1.0) for T in steps]
        right.plot(steps, values, color=colour, label=name)
    split = [altschuler_talwar_5_3_full_batch(runs.chien_li_example(T, strong)) for T in steps]
    right.plot(steps, split, color=_RED, linestyle="--", linewidth=1.0,
               label="Altschuler and Talwar, (5.3)")  # fmt: skip
    exact = [account(runs.chien_li_example(T, strong)).renyi(1.0) for T in steps]
    right.plot(steps, exact, color="black", linestyle=":", label="shifts")
    right.set(xlabel="steps", ylim=(0, 0.3))
    right.legend(fontsize=6.5)


def altschuler_talwar_5_3_full_batch(run: TrainingRun) -> float:
    """The least of (5.3) for full batches, over the order: R s^2/(2 n_2^2) + c^2R D^2/(2 n_1^2).

    n_1^2 + n_2^2 is the variance of a step's noise; b = n makes S_alpha that of a Gaussian.
    """
    assert isinstance(run.domain, Ball)
    eta, noise = float(np.max(run.step_size)), float(np.max(run.noise_std))
    c = 1.0 - eta * run.loss.strong_convexity
    s = run.sensitivity / run.batches.examples / noise
    R = np.arange(1.0, run.steps + 1.0)
    far = c**R * run.domain.diameter / (eta * noise)
    return float(np.min((s * np.sqrt(R) + far) ** 2)) / 2.0  # the best split of the noise


def chourasia_2(canvas: Any) -> None:
    axes, steps = canvas.subplots(), _epochs(400)
    lower = LOWER_BOUNDS["published/chourasia-ye-shokri/squared-lower"]
    for order, shade in ((10.0, _BLUE), (20.0, _GREEN), (30.0, _RED)):
        examples = [runs.chourasia_example(K) for K in steps]
        upper = [_profile_of("chourasia-ye-shokri/squared-loss", x).renyi(order) for x in examples]
        mus = [lower.profile(x).gdp() for x in examples]
        composed = [_profile_of("chourasia-ye-shokri/linear", x).renyi(order) for x in examples]
        axes.plot(steps, upper, color=shade, label=f"order {order:g}")
        axes.plot(steps, [order * mu * mu / 2 for mu in mus], color=shade, linestyle="--")
        axes.plot(steps, composed, color=shade, linestyle=":", linewidth=1.0)
    axes.set(xlabel="steps", ylabel="Renyi divergence", ylim=(0, 0.06))
    axes.set_title("solid: Corollary 2; dashed: lower bound; dotted: composition", fontsize=8)
    axes.legend()


def altschuler_talwar_1(canvas: Any) -> None:
    axes, steps = canvas.subplots(), np.unique(np.geomspace(10, 1e6, 40).astype(int)).tolist()
    bound = CATALOGUE["published/altschuler-talwar/sampled-bounded"]

    def run(T: int) -> TrainingRun:
        return TrainingRun(
            loss=Loss(smoothness=1.0, lipschitz=1.0), sensitivity=2.0,
            batches=SampledWithoutReplacement(1000, 10), steps=T, step_size=0.1, noise_std=2.0,
            domain=Ball(1.0),
        )  # fmt: skip

    order = 4.0
    one = float(sampled_gaussian(0.01, 10.0, np.array([order]))[0])
    axes.plot(steps, [T * one for T in steps], color=_RED, label="composition")
    values = [bound.profile(run(T)).renyi(order) for T in steps]
    both = [min(T * one, value) for T, value in zip(steps, values, strict=True)]
    axes.plot(steps, both, color=_BLUE, label="(3.6), the larger direction, as published")
    axes.set(xlabel="steps", ylabel="Renyi divergence of order 4", xscale="log", yscale="log")
    axes.legend()


FIGURES = (
    FigureItem("ys-figure-1", "a fixed order, by position", ye_shokri_1, size=(7.2, 4.0)),
    FigureItem("ys-figure-2", "random orders", ye_shokri_2),
    FigureItem(
        "cl-figure-1", "smooth losses on a bounded domain", chien_li_1,
        (
            "Right: print has Chien and Li below Altschuler and Talwar everywhere.  That is so "
            "for (5.3), which splits the noise; Proposition 5.6 with its best shifts does not, and "
            "is below both in longer runs.",
            "Ye and Shokri's Theorem D.6 is inferred: its text is not at hand.",
        ),
    ),
    FigureItem("cys-figure-2", "squared losses, both sides", chourasia_2, size=_SMALL_SIZE),
    FigureItem(
        "at-figure-1", "more iterations without more privacy loss", altschuler_talwar_1,
        (
            "The original is a sketch; here n = 1000, b = 10, eta = .1, sigma = 2, D = L = 1.",
            "(3.6) is not proved: as published only.",
        ),
        size=_SMALL_SIZE,
    ),
)  # fmt: skip
