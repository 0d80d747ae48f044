"""Bok, Su and Altschuler 2024, Tables 1, 3, 4 and 7 to 12."""

import math

from lastiterate._numerics.rounding import down
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.reproduce import printed, runs
from lastiterate.reproduce.items import Cell, Table, TableItem
from lastiterate.run.batch_rules.rules import SampledWithoutReplacement
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_DELTA = 1e-5
_SAMPLED = SampledWithoutReplacement(60_000, 1_500)
_CLIPPED = (
    "These rows take for granted that steps with norm-clipped softmax gradients contract, which "
    "is false for ten classes (see the errata)."
)


def _published(what: str, run: TrainingRun) -> PrivacyProfile:
    return CATALOGUE[f"published/{what}"].profile(run)


def table_1() -> Table:
    """Table 1: epsilon by composition, Renyi divergences and their bound."""
    cells = []
    for epochs, values in printed.TABLE_1.items():
        run = runs.mnist(epochs, 0.002)
        ours = (
            _published("bok-su-altschuler/cyclic-composition", run).epsilon(_DELTA),
            _published("ye-shokri/fixed-order", run).epsilon(_DELTA),
            _published("bok-su-altschuler/cyclic", run).epsilon(_DELTA),
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
    for epochs, values in printed.TABLE_3.items():
        run = runs.mnist(epochs, 0.002)
        ours = [
            _published("bok-su-altschuler/cyclic-composition", run).gdp(),
            clt.estimate(runs.mnist(epochs, 0.002, _SAMPLED)).mu,
            *(
                _published("bok-su-altschuler/cyclic", runs.mnist(epochs, lam)).gdp()
                for lam in printed.REGULARISERS
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
    for epochs, values in printed.TABLE_4.items():
        both = [runs.mnist(epochs, lam) for lam in printed.REGULARISERS]
        sampled = runs.mnist(epochs, 0.002, _SAMPLED)
        ours = [
            _published("bok-su-altschuler/cyclic-composition", both[0]).epsilon(_DELTA),
            _published("bok-su-altschuler/sampled-composition", sampled).epsilon(_DELTA),
            *(_published("ye-shokri/fixed-order", run).epsilon(_DELTA) for run in both),
            *(_published("bok-su-altschuler/cyclic", run).epsilon(_DELTA) for run in both),
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
    for steps, (composed, *values) in printed.TABLE_7.items():
        flat = runs.contracting(contraction=1.0, steps=steps, ratio=0.1)
        mu = _published("bok-su-altschuler/full-batch-composition", flat).gdp()
        cells.append(Cell(f"{steps} steps, composition", mu, composed, 3))
        for c, value in zip(printed.CONTRACTIONS_7, values, strict=True):
            run = runs.contracting(contraction=c, steps=steps, ratio=0.1)
            mu = _published("bok-su-altschuler/full-batch", run).gdp()
            cells.append(Cell(f"{steps} steps, c = {c}", mu, value, 3))
    return Table("bsa-table-7", "mu, full batch", tuple(cells))


def table_8() -> Table:
    """Table 8: (t*, mu*) of full batches on a bounded domain."""
    cells = []
    for sensitivity, row in printed.TABLE_8.items():
        for eta, (steps, mu) in zip(printed.STEP_SIZES_8, row, strict=True):
            run = runs.contracting(
                contraction=1.0, steps=10**6, ratio=sensitivity / 8.0, noise_std=8.0,
                step_size=eta, domain=Ball(1.0),
            )  # fmt: skip
            ours = _published("bok-su-altschuler/full-batch-bounded", run).gdp()
            where = f"L/n = {sensitivity}, eta = {eta}"
            # Composition grows as r sqrt(t), and meets mu* at (mu*/r)^2.
            crossing = math.ceil(down((ours / (sensitivity / 8.0)) ** 2, 1e-9))
            cells.append(Cell(f"t*, {where}", crossing, steps, 0))
            cells.append(Cell(f"mu*, {where}", ours, mu, 3))
    return Table("bsa-table-8", "(t*, mu*), full batch on a bounded domain", tuple(cells))


def table_9() -> Table:
    """Table 9: mu of cyclic batches, by number of epochs, batches and contraction."""
    cells = []
    for epochs, (composed, *values) in printed.TABLE_9.items():
        flat = runs.contracting(contraction=1.0, steps=10 * epochs, ratio=0.2, batches=10)
        mu = _published("bok-su-altschuler/cyclic-composition", flat).gdp()
        cells.append(Cell(f"{epochs} epochs, composition", mu, composed, 3))
        for (length, c), value in zip(printed.COLUMNS_9, values, strict=True):
            run = runs.contracting(contraction=c, steps=length * epochs, ratio=0.2, batches=length)
            where = f"{epochs} epochs, l = {length}, c = {c}"
            mu = _published("bok-su-altschuler/cyclic", run).gdp()
            cells.append(Cell(where, mu, value, 3))
    return Table("bsa-table-9", "mu, cyclic batches", tuple(cells))


def table_10_to_12(length: int) -> Table:
    """Table 10, 11 or 12: (E*, mu*) for 10, 20 or 40 cyclic batches on a bounded domain."""
    cells = []
    for sensitivity, row in printed.TABLES_10_TO_12[length].items():
        for eta, (epochs, mu) in zip(printed.STEP_SIZES_10, row, strict=True):
            run = runs.contracting(
                contraction=1.0, steps=length * 10**5, ratio=sensitivity / 3.0, batches=length,
                noise_std=3.0, step_size=eta, domain=Ball(1.0),
            )  # fmt: skip
            ours = _published("bok-su-altschuler/cyclic-bounded", run).gdp()
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
