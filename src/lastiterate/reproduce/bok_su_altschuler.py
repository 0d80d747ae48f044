"""Bok, Su and Altschuler 2024: Tables 1 to 12 and Figures 1, 2, 4 and 6 to 10.

Tables 2, 5 and 6 are accuracies on MNIST, means over seeds.  Training images are clipped to norm 8;
test images are not, as in the authors' code.  Gradients are clipped by their norm, as published, so
that the epsilon stated for these runs is not certified.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from lastiterate._numerics.rounding import Array, down
from lastiterate._progress import track
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
from lastiterate.bounds.published.bok_su_altschuler import limit
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.renyi import ZCDPProfile
from lastiterate.reproduce import items, runs
from lastiterate.reproduce.items import Cell, FigureItem, Table, TableItem
from lastiterate.reproduce.ye_shokri import (
    Batches,
    Clipping,
    Floats,
    Labels,
    SoftmaxSettings,
    accuracy,
    clipped_rows,
    weights_by_epoch,
    with_intercept,
)
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import Ball, TrainingRun

_DELTA = 1e-5
_SAMPLED = SampledWithoutReplacement(60_000, 1_500)
_CLIPPED = (
    "These rows take for granted that steps with norm-clipped softmax gradients contract, which "
    "is false for ten classes (see the errata)."
)
_DELTAS = (1e-3, 1e-5)
_STEPS, _EPOCHS = (10, 20, 40, 80, 160, 320, 640), (5, 10, 20, 40, 80, 160, 320)
_BLUE, _GREY = "#1f5fa8", "#7a7a7a"
_BLUES = (_BLUE, "#4c9ac9", "#12355b")
_REDS = ("#b5432a", "#e0a698", "#6e2415")
_RATES = np.linspace(0.0, 1.0, 401)
_SHARES = (0.0025, 0.005, 0.01, 0.02, 0.04)
_LENGTHS = (5_000, 20_000, 80_000)
_SMALL_SIZE = (3.6, 3.2)
_FEATURE_NORM = 8.0
_TOLERANCE = 0.1  # their means over ten runs have standard deviations of .01 to .03
_COLUMNS: tuple[tuple[Batches, float], ...] = (
    ("cyclic", 0.002),
    ("cyclic", 0.004),
    ("sampled", 0.002),
    ("sampled", 0.004),
)
_MNIST = "a folder with MNIST"


def _profile_of(what: str, run: TrainingRun) -> PrivacyProfile:
    return CATALOGUE[f"published/{what}"].profile(run)


def table_1() -> Table:
    """Table 1: epsilon by composition, Renyi divergences and their bound."""
    cells = []
    for epochs, values in items.TABLE_1.items():
        run = runs.mnist(epochs, 0.002)
        ours = (
            _profile_of("bok-su-altschuler/cyclic-composition", run).epsilon(_DELTA),
            _profile_of("ye-shokri/fixed-order", run).epsilon(_DELTA),
            _profile_of("bok-su-altschuler/cyclic", run).epsilon(_DELTA),
        )
        names = ("composition", "Renyi", "last iterate")
        cells += [
            Cell(f"{epochs} epochs, {name}", one, value, 2)
            for name, one, value in zip(names, ours, values, strict=True)
        ]
    return Table("bsa-table-1", "epsilon at delta = 1e-5, MNIST", tuple(cells), (_CLIPPED,))


def table_3() -> Table:
    """Table 3: mu by composition and their bound."""
    clt = APPROXIMATIONS["published/bok-su-altschuler/sampled-composition-estimate"]
    cells = []
    for epochs, values in items.TABLE_3.items():
        run = runs.mnist(epochs, 0.002)
        ours = [
            _profile_of("bok-su-altschuler/cyclic-composition", run).gdp(),
            clt.estimate(runs.mnist(epochs, 0.002, _SAMPLED)).mu,
            *(
                _profile_of("bok-su-altschuler/cyclic", runs.mnist(epochs, lam)).gdp()
                for lam in items.REGULARISERS
            ),
        ]
        names = (
            "composition, cyclic",
            "composition, sampled (estimate)",
            "lambda .002",
            "lambda .004",
        )
        cells += [
            Cell(f"{epochs} epochs, {name}", one, value, 2)
            for name, one, value in zip(names, ours, values, strict=True)
        ]
    return Table("bsa-table-3", "mu, MNIST", tuple(cells), (_CLIPPED,))


def table_4() -> Table:
    """Table 4: epsilon, in detail."""
    cells = []
    for epochs, values in items.TABLE_4.items():
        both = [runs.mnist(epochs, lam) for lam in items.REGULARISERS]
        sampled = runs.mnist(epochs, 0.002, _SAMPLED)
        ours = [
            _profile_of("bok-su-altschuler/cyclic-composition", both[0]).epsilon(_DELTA),
            _profile_of("bok-su-altschuler/sampled-composition", sampled).epsilon(_DELTA),
            *(_profile_of("ye-shokri/fixed-order", run).epsilon(_DELTA) for run in both),
            *(_profile_of("bok-su-altschuler/cyclic", run).epsilon(_DELTA) for run in both),
        ]
        names = (
            "composition, cyclic", "composition, sampled", "Renyi, .002", "Renyi, .004",
            "last iterate, .002", "last iterate, .004",
        )  # fmt: skip
        cells += [
            Cell(f"{epochs} epochs, {name}", one, value, 2)
            for name, one, value in zip(names, ours, values, strict=True)
        ]
    return Table("bsa-table-4", "epsilon at delta = 1e-5, MNIST", tuple(cells), (_CLIPPED,))


def table_7() -> Table:
    """Table 7: mu of full batches, by number of steps and contraction."""
    cells = []
    for steps, (composed, *values) in items.TABLE_7.items():
        flat = runs.contracting(contraction=1.0, steps=steps, ratio=0.1)
        mu = _profile_of("bok-su-altschuler/full-batch-composition", flat).gdp()
        cells.append(Cell(f"{steps} steps, composition", mu, composed, 3))
        for c, value in zip(items.CONTRACTIONS_7, values, strict=True):
            run = runs.contracting(contraction=c, steps=steps, ratio=0.1)
            mu = _profile_of("bok-su-altschuler/full-batch", run).gdp()
            cells.append(Cell(f"{steps} steps, c = {c}", mu, value, 3))
    return Table("bsa-table-7", "mu, full batch", tuple(cells))


def table_8() -> Table:
    """Table 8: (t*, mu*) of full batches on a bounded domain."""
    cells = []
    for sensitivity, row in items.TABLE_8.items():
        for eta, (steps, mu) in zip(items.STEP_SIZES_8, row, strict=True):
            run = runs.contracting(
                contraction=1.0, steps=10**6, ratio=sensitivity / 8.0, noise_std=8.0,
                step_size=eta, domain=Ball(1.0),
            )  # fmt: skip
            ours = _profile_of("bok-su-altschuler/full-batch-bounded", run).gdp()
            where = f"L/n = {sensitivity}, eta = {eta}"
            # Composition grows as r sqrt(t), and meets mu* at (mu*/r)^2.
            crossing = math.ceil(down((ours / (sensitivity / 8.0)) ** 2, 1e-9))
            cells.append(Cell(f"t*, {where}", crossing, steps, 0))
            cells.append(Cell(f"mu*, {where}", ours, mu, 3))
    return Table("bsa-table-8", "(t*, mu*), full batch on a bounded domain", tuple(cells))


def table_9() -> Table:
    """Table 9: mu of cyclic batches, by number of epochs, batches and contraction."""
    cells = []
    for epochs, (composed, *values) in items.TABLE_9.items():
        flat = runs.contracting(contraction=1.0, steps=10 * epochs, ratio=0.2, batches=10)
        mu = _profile_of("bok-su-altschuler/cyclic-composition", flat).gdp()
        cells.append(Cell(f"{epochs} epochs, composition", mu, composed, 3))
        for (length, c), value in zip(items.COLUMNS_9, values, strict=True):
            run = runs.contracting(contraction=c, steps=length * epochs, ratio=0.2, batches=length)
            where = f"{epochs} epochs, l = {length}, c = {c}"
            mu = _profile_of("bok-su-altschuler/cyclic", run).gdp()
            cells.append(Cell(where, mu, value, 3))
    return Table("bsa-table-9", "mu, cyclic batches", tuple(cells))


def table_10_to_12(length: int) -> Table:
    """Table 10, 11 or 12: (E*, mu*) for 10, 20 or 40 cyclic batches on a bounded domain."""
    cells = []
    for sensitivity, row in items.TABLES_10_TO_12[length].items():
        for eta, (epochs, mu) in zip(items.STEP_SIZES_10, row, strict=True):
            run = runs.contracting(
                contraction=1.0, steps=length * 10**5, ratio=sensitivity / 3.0, batches=length,
                noise_std=3.0, step_size=eta, domain=Ball(1.0),
            )  # fmt: skip
            ours = _profile_of("bok-su-altschuler/cyclic-bounded", run).gdp()
            k = 1.0 / (eta * sensitivity)
            crossing = math.ceil(down(1.0 + 4.0 * k / length, 1e-9))
            where = f"L/b = {sensitivity}, eta = {eta}"
            theirs = e_star_of_their_code(length, sensitivity, eta)
            cells.append(Cell(f"E* of their code, {where}", theirs, epochs, 0))
            cells.append(Cell(f"E*, {where}", crossing, epochs, 0, "where the bounds cross"))
            cells.append(Cell(f"mu*, {where}", ours, mu, 3))
    number = {10: 10, 20: 11, 40: 12}[length]
    title = f"(E*, mu*), {length} cyclic batches, bounded domain"
    notes = (
        "Composition, r sqrt(E), crosses mu* = r sqrt(1 + 4 k/l) at E* = ceil(1 + 4 k/l) epochs, "
        "k = D b/(eta L).",
        "Their code multiplies (L/b)^2 by (L/b)^2 k/l where Theorem 4.6 adds the two.",
    )
    return Table(f"bsa-table-{number}", title, tuple(cells), notes)


def e_star_of_their_code(length: int, sensitivity: float, eta: float) -> int:
    """The printed E*, ceil((3 + (L/b)^2) k/l) with k = b/(eta L).

    (mu*/r)^2 is 1 + 4 k/l; they multiply where its terms are to be added.
    """
    k = 1.0 / (eta * sensitivity)
    return math.ceil(down((3.0 * k + sensitivity**2 * math.ceil(down(k, 1e-9))) / length, 1e-9))


TABLES = (
    TableItem("bsa-table-1", "epsilon of logistic regression on MNIST", table_1),
    TableItem("bsa-table-3", "mu of the same, in detail", table_3),
    TableItem("bsa-table-4", "epsilon of the same, in detail", table_4),
    TableItem("bsa-table-7", "mu of full batches", table_7),
    TableItem("bsa-table-8", "full batches on a bounded domain", table_8),
    TableItem("bsa-table-9", "mu of cyclic batches", table_9),
    TableItem("bsa-table-10", "10 cyclic batches, bounded domain", lambda: table_10_to_12(10)),
    TableItem("bsa-table-11", "20 cyclic batches, bounded domain", lambda: table_10_to_12(20)),
    TableItem("bsa-table-12", "40 cyclic batches, bounded domain", lambda: table_10_to_12(40)),
)


def _tradeoff(axes: Any, mu: float, **style: Any) -> None:
    with np.errstate(divide="ignore"):
        axes.plot(_RATES, ndtr(ndtri(1.0 - _RATES) - mu), **style)


def _square(axes: Any) -> None:
    axes.plot([0, 1], [1, 0], color="0.85", linewidth=1.0, zorder=0)
    axes.set(xlabel="false-positive rate", ylabel="false-negative rate", xlim=(0, 1), ylim=(0, 1))


class _Comparison(NamedTuple):
    """Composition and one of their bounds, on runs of different lengths.

    `converged` is a length at which the bound no longer grows.  It then holds for shorter runs,
    too, though their theorem asks for long ones: a shorter run is a longer one whose first steps
    do not see the example.
    """

    run_of: Callable[[int], TrainingRun]
    composition: str
    bound: str
    what: str = "steps"
    converged: int | None = None

    def mus(self, count: int) -> tuple[float, float]:
        """The mu of composition, and of the bound or composition, whichever is less."""
        run = self.run_of(count)
        composed = CATALOGUE[f"published/bok-su-altschuler/{self.composition}"].profile(run).gdp()
        statement = CATALOGUE[f"published/bok-su-altschuler/{self.bound}"]
        last = statement.profile(run if self.converged is None else self.run_of(self.converged))
        return composed, min(last.gdp(), composed)


def _two_panels(
    canvas: Any,
    compared: _Comparison,
    shown: Sequence[int],
    counts: Sequence[int],
    deltas: Sequence[float],
) -> tuple[Any, Array]:
    """The right axes and the mu by length.

    Left are trade-off curves after `shown`, right is epsilon by number of steps or epochs.
    """
    left, right = canvas.subplots(1, 2)
    what = compared.what
    for count, red, blue in zip(shown, _REDS, _BLUES, strict=False):
        composed, last = compared.mus(count)
        _tradeoff(left, composed, color=red, linestyle="--", label=f"composition, {count} {what}")
        if compared.converged is None:
            _tradeoff(left, last, color=blue, label=f"last iterate, {count} {what}")
    if compared.converged is not None:
        _tradeoff(
            left, compared.mus(compared.converged)[1], color=_BLUE,
            label=f"last iterate, {shown[0]} {what} or more",
        )  # fmt: skip
    _square(left)
    left.legend(fontsize=6.5)
    pairs = np.array([compared.mus(count) for count in counts])
    for delta, red, blue in zip(deltas, _REDS[::-1], _BLUES[::-1], strict=False):
        epsilons = [[GaussianProfile(mu).epsilon(delta) for mu in row] for row in pairs.tolist()]
        by_length = np.array(epsilons)
        style = {"marker": "o", "markersize": 3}
        label = f", delta = {delta:g}"
        right.plot(counts, by_length[:, 0], color=red, linestyle="--", label="composition" + label,
                   **style)  # fmt: skip
        right.plot(counts, by_length[:, 1], color=blue, label="last iterate" + label, **style)
    right.set(xlabel=what, ylabel="epsilon", xscale="log", ylim=(0, None))
    right.legend(fontsize=6.5)
    return right, pairs[:, 1]


def figure_1(canvas: Any) -> None:
    counts = (10, 20, 40, 80, 160)
    compared = _Comparison(
        lambda steps: runs.contracting(contraction=0.95, steps=steps, ratio=0.1),
        "full-batch-composition", "full-batch",
    )  # fmt: skip
    axes, mus = _two_panels(canvas, compared, (160,), counts, (_DELTA,))
    renyi = [ZCDPProfile(mu * mu / 2).epsilon(_DELTA) for mu in mus.tolist()]
    axes.plot(counts, renyi, color=_GREY, linestyle=":", label="the same, through Renyi")
    prior = CATALOGUE["published/ye-shokri/full-batch"]
    earlier = [prior.profile(compared.run_of(count)).epsilon(_DELTA) for count in counts]
    axes.plot(counts, earlier, color="#3a7d44", marker="o", markersize=3,
              label="Ye and Shokri 2022, Theorem D.6")  # fmt: skip
    axes.legend(fontsize=6.5)


def figure_2(canvas: Any) -> None:
    axes = canvas.subplots()
    for mu, shade in ((0.5, 0.65), (1.0, 0.4), (5.0, 0.0)):
        _tradeoff(axes, mu, color=str(shade), label=f"G({mu:g})")
    # Two tests, mixed: above G(1) everywhere, below G(.5) in the middle.
    corner = 0.37
    axes.plot([0.0, corner, 1.0], [1.0, corner, 0.0], color=_BLUE, linestyle="--",
              label="1-GDP, not .5-GDP")  # fmt: skip
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
        while len(hull) > 1 and _is_above_chord(lower, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    return np.interp(_RATES, _RATES[hull], lower[hull])


def _is_above_chord(y: Array, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (c - a) >= (y[c] - y[a]) * (b - a))


def figure_4(canvas: Any) -> None:
    axes, p, mu = canvas.subplots(), 0.25, 2.5
    z = np.linspace(-9.0, 9.0, 2001)
    for lam, dash in ((0.0, ":"), (0.5, "--"), (1.0, "-.")):
        alpha = 1 - (1 - p) * ndtr(z) - p * ndtr(z + (1 - lam) * mu)
        beta = (1 - p) * ndtr(z) + p * ndtr(z - lam * mu)
        axes.plot(alpha, beta, color=_GREY, linestyle=dash, label=f"one step, lambda = {lam:g}")
    axes.plot(_RATES, _subsampled(p, mu), color=_BLUE, label="C_p(G(2.5)), p = 1/4")
    _square(axes)
    axes.legend()


def figure_6(canvas: Any) -> None:
    compared = _Comparison(
        lambda steps: runs.contracting(contraction=0.99, steps=steps, ratio=0.1),
        "full-batch-composition", "full-batch",
    )  # fmt: skip
    _two_panels(canvas, compared, (10, 100, 1000), _STEPS, _DELTAS)


def figure_7(canvas: Any) -> None:
    compared = _Comparison(
        lambda steps: runs.contracting(
            contraction=1.0, steps=steps, ratio=0.5 / 8, noise_std=8.0, step_size=0.1,
            domain=Ball(1.0),
        ),
        "full-batch-composition", "full-batch-bounded", converged=640,
    )  # fmt: skip
    _two_panels(canvas, compared, (80, 160, 320), _STEPS, _DELTAS)


def figure_8(canvas: Any) -> None:
    compared = _Comparison(
        lambda epochs: runs.contracting(
            contraction=0.99, steps=20 * epochs, ratio=0.2, batches=20
        ),
        "cyclic-composition", "cyclic", "epochs",
    )  # fmt: skip
    _two_panels(canvas, compared, (5, 50, 500), _EPOCHS, _DELTAS)


def figure_9(canvas: Any) -> None:
    compared = _Comparison(
        lambda epochs: runs.contracting(
            contraction=1.0, steps=20 * epochs, ratio=0.5 / 3, batches=20, noise_std=3.0,
            step_size=0.02, domain=Ball(1.0),
        ),
        "cyclic-composition", "cyclic-bounded", "epochs", 320,
    )  # fmt: skip
    _two_panels(canvas, compared, (25, 50, 100), _EPOCHS, _DELTAS)


def bounded_limit(share: float, ratio: float, far: float) -> float:
    """The mu of Theorem 4.10 by the central limit theorem, with their split of noise and lengths.

    `ratio` is L/(b sigma), `far` is D/(eta sigma).
    """
    return min(
        math.hypot(
            math.sqrt(10.0 / R) * far,
            limit(2.0 * math.sqrt(10.0) / 3.0 * ratio, share, R),
        )
        for R in range(100, 5_000, 100)
    )


def figure_10(canvas: Any) -> None:
    """Limit theorems only: all curves are estimates."""
    sigma = 3.0
    grid = canvas.subplots(5, 5, sharex=True, sharey=True)
    for axes_of_row, p in zip(grid, _SHARES, strict=True):
        for axes, sensitivity in zip(axes_of_row, (0.125, 0.25, 0.5, 1.0, 2.0), strict=True):
            r = sensitivity / sigma
            for steps, red in zip(_LENGTHS, _REDS, strict=True):
                label = f"composition, {steps:,} steps"
                _tradeoff(axes, limit(r, p, steps), color=red, linestyle="--", label=label,
                          linewidth=1.0)  # fmt: skip
            for eta, blue in zip((0.2, 0.1, 0.05), _BLUES, strict=True):
                mu = bounded_limit(p, r, 1.0 / (eta * sigma))
                _tradeoff(axes, mu, color=blue, label=f"last iterate, eta = {eta:g}", linewidth=1.2)
            axes.set_title(f"b/n = {p:g}, L/b = {sensitivity:g}", fontsize=6.5)
            axes.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    canvas.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    grid[4, 2].set_xlabel("false-positive rate")
    grid[2, 0].set_ylabel("false-negative rate")


FIGURES = (
    FigureItem(
        "bsa-figure-1", "full batch, strongly convex", figure_1,
        ("The earlier Renyi bound is inferred: its text is not at hand.",),
    ),
    FigureItem("bsa-figure-2", "Gaussian trade-off curves", figure_2, size=_SMALL_SIZE),
    FigureItem("bsa-figure-4", "one sampled step", figure_4, size=_SMALL_SIZE),
    FigureItem("bsa-figure-6", "full batch, c = .99", figure_6),
    FigureItem("bsa-figure-7", "full batch on a bounded domain", figure_7),
    FigureItem("bsa-figure-8", "cyclic batches, c = .99, l = 20", figure_8),
    FigureItem("bsa-figure-9", "cyclic batches on a bounded domain", figure_9),
    FigureItem(
        "bsa-figure-10", "sampled batches on a bounded domain: estimates", figure_10,
        (
            "All curves come from limit theorems and are estimates, not bounds.",
            "The text states D = 1 and sigma = 3; the other values are those of the authors' code.",
        ),
        size=(8.4, 8.8),
    ),
)  # fmt: skip


def read_mnist(folder: Path) -> tuple[Floats, Labels, Floats, Labels]:
    """Training images clipped to norm 8 and their labels, then test images and theirs.

    A constant 1 is appended to every image.
    """
    root = Path(folder) / "mnist" if (Path(folder) / "mnist").is_dir() else Path(folder)
    x, y = _images(root, "train")
    x_test, y_test = _images(root, "t10k")
    return with_intercept(clipped_rows(x, _FEATURE_NORM)), y, with_intercept(x_test), y_test


def _images(root: Path, name: str) -> tuple[Floats, Labels]:
    images, labels = (root / f"{name}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    if not (images.is_file() and labels.is_file()):
        must_be = f"a folder with {images.name} and {labels.name}"
        raise InvalidParameter("data", str(root), must_be=must_be)
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
    x = pixels.reshape(-1, 784).astype(np.float32) / np.float32(255.0)
    answers = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    return x, answers.astype(np.int64)


@lru_cache(maxsize=16)
def mean_accuracies(
    data: Path, seeds: int, batches: Batches, regulariser: float, clipping: Clipping = "norm"
) -> NDArray[np.float64]:
    """Training and test accuracy after 50, 100 and 200 epochs: a row for each, means of seeds."""
    x, y, x_test, y_test = read_mnist(data)
    settings = SoftmaxSettings(
        clip_norm=5.0, step_size=0.05, noise_std=0.01, batch_size=1_500, regulariser=regulariser,
        epochs=max(items.EPOCHS), batches=batches, clipping=clipping,
    )  # fmt: skip
    rows = [
        [
            (accuracy(x, y, weights), accuracy(x_test, y_test, weights))
            for epoch, weights in weights_by_epoch(x, y, settings, seed)
            if epoch in items.EPOCHS
        ]
        for seed in track(f"training, {batches} batches, lambda = {regulariser}", range(seeds))
    ]
    return np.asarray(np.mean(rows, axis=0))


def table_2(data: Path, seeds: int) -> Table:
    """Table 2: cyclic batches, lambda = .002; another clipping in the notes."""
    found = mean_accuracies(data, seeds, *_COLUMNS[0])
    cells = [
        Cell(f"{epochs} epochs, {what}", found[row, column], table[epochs][0], 2, within=_TOLERANCE)
        for row, epochs in enumerate(items.EPOCHS)
        for column, (what, table) in enumerate(
            (("training", items.TABLE_5), ("test", items.TABLE_6))
        )
    ]
    convex = mean_accuracies(data, seeds, *_COLUMNS[0], "wrong mass")
    listed = ", ".join(f"{a:.2f}/{b:.2f}" for a, b in convex)
    notes = (
        _means(seeds),
        "With a clipping that keeps losses convex, for which the stated epsilon holds: "
        f"{listed} (training/test after 50, 100, 200 epochs).",
    )
    return Table("bsa-table-2", "accuracy in per cent, cyclic, lambda = .002", tuple(cells), notes)


def table_5_or_6(number: int, data: Path, seeds: int) -> Table:
    """Table 5 (training) or 6 (test): both kinds of batches, both regularisers."""
    table = items.TABLE_5 if number == 5 else items.TABLE_6
    cells = []
    for column, (batches, regulariser) in enumerate(_COLUMNS):
        found = mean_accuracies(data, seeds, batches, regulariser)[:, number - 5]
        cells += [
            Cell(
                f"{epochs} epochs, {batches}, lambda = {regulariser}", value, table[epochs][column],
                2, within=_TOLERANCE,
            )
            for epochs, value in zip(items.EPOCHS, found.tolist(), strict=True)
        ]  # fmt: skip
    what = "training" if number == 5 else "test"
    title = f"{what} accuracy in per cent"
    return Table(f"bsa-table-{number}", title, tuple(cells), (_means(seeds),))


def _means(seeds: int) -> str:
    return (
        f"Means over {seeds} seed{'s' * (seeds > 1)}; print has means over ten.  Cells agree "
        f"within {_TOLERANCE:g}.  Norm clipping: the stated epsilon is not certified (see the "
        "errata)."
    )


ACCURACY_TABLES = (
    TableItem("bsa-table-2", "accuracy on MNIST", table_2, _MNIST),
    TableItem(
        "bsa-table-5",
        "training accuracy on MNIST",
        lambda data, seeds: table_5_or_6(5, data, seeds),
        _MNIST,
    ),
    TableItem(
        "bsa-table-6",
        "test accuracy on MNIST",
        lambda data, seeds: table_5_or_6(6, data, seeds),
        _MNIST,
    ),
)
