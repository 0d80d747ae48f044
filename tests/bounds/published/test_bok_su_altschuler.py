"""Bok, Su and Altschuler 2024: every printed digit, from `account` on a run."""

import math

import numpy as np
import pytest

import lastiterate as li
from tests.bounds.runs import described
from tests.readme_run import readme_run
from tests.reference import tables

ENDLESS = 10**9
PAPER = "published/bok-su-altschuler"


def cells(table, name):
    return [pytest.param(key, value, id=str(key)) for key, value in table[name].items()]


def quadratic(batches, steps, *, contraction=1.0, step_size=1.0, **changes):
    """L/b = sensitivity; a quadratic of curvature (1 - c)/eta has every step contract by c."""
    curvature = (1 - contraction) / step_size
    loss = li.Loss(smoothness=curvature, strong_convexity=curvature)
    return described(batches, steps, loss=loss, step_size=step_size, **changes)


class TestTable3:
    SETTING = tables.TABLE_3["parameters"]

    def run(self, epochs, regulariser):
        return readme_run(li.Cyclic, epochs, regulariser)

    def test_is_of_the_run_that_most_pages_speak_of(self):
        run, given = self.run(50, 0.002), self.SETTING
        assert run.steps == 50 * given["batches"]
        assert run.batches == li.Cyclic(given["examples"], given["batch_size"])
        said = {name: getattr(run, name) for name in ("sensitivity", "step_size", "noise_std")}
        assert said == {name: given[name] for name in said}

    @pytest.mark.parametrize("cell, mu", cells(tables.TABLE_3, "fixed_order"))
    def test_fixed_order(self, cell, mu):
        assert round(li.account(self.run(*cell)).gdp(), 2) == mu

    @pytest.mark.parametrize("epochs, mu", cells(tables.TABLE_3, "composition_cyclic"))
    def test_composition(self, epochs, mu):
        report = li.account(self.run(epochs, 0.002))
        assert round(report.all["composition/fixed-order"].gdp(), 2) == mu

    @pytest.mark.parametrize(
        "epochs, regulariser, mu, epsilon",
        [
            (50, 0.002, 0.9925, 4.3392), (100, 0.002, 1.2353, 5.6013), (200, 0.002, 1.5930, 7.5789),
            (50, 0.004, 0.9889, 4.3208), (100, 0.004, 1.2175, 5.5061), (200, 0.004, 1.5061, 7.0859),
        ],
    )  # fmt: skip
    def test_to_four_digits(self, epochs, regulariser, mu, epsilon):
        report = li.account(self.run(epochs, regulariser))
        assert report.gdp() == pytest.approx(mu, abs=5e-5)
        assert report.epsilon(1e-5) == pytest.approx(epsilon, abs=5e-5)

    @pytest.mark.parametrize("epochs, epsilon", [(50, 3.1603), (100, 4.6448)])
    def test_with_noise_on_release(self, epochs, epsilon):
        run = self.run(epochs, 0.002).replace(release_noise_std=0.002)
        assert li.account(run).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-4)


@pytest.mark.parametrize("cell, mu", cells(tables.TABLE_7, "full_batch"))
def test_table_7(cell, mu):
    steps, contraction = cell
    run = quadratic(li.FullBatch(1), steps, contraction=contraction, sensitivity=0.1)
    assert round(li.account(run).gdp(), 3) == mu


@pytest.mark.parametrize("cell, values", cells(tables.TABLE_8, "full_batch_bounded"))
def test_table_8(cell, values):
    (sensitivity, step_size), (threshold, mu) = cell, values

    def after(steps):
        run = quadratic(
            li.FullBatch(1), steps, sensitivity=sensitivity, noise_std=8.0, step_size=step_size,
            domain=li.Ball(1.0),
        )  # fmt: skip
        return li.account(run).gdp()

    assert round(after(ENDLESS), 3) == mu
    assert after(threshold) == pytest.approx(after(ENDLESS), rel=1e-12)
    assert after(threshold - 1) < after(ENDLESS) * (1 - 1e-4)


@pytest.mark.parametrize("cell, mu", cells(tables.TABLE_9, "cyclic"))
def test_table_9(cell, mu):
    epochs, batches, contraction = cell
    rule, steps = li.Cyclic(batches, 1), epochs * batches
    run = quadratic(rule, steps, contraction=contraction, sensitivity=0.2)
    assert round(li.account(run).gdp(), 3) == mu


@pytest.mark.parametrize("table", [tables.TABLE_10, tables.TABLE_11, tables.TABLE_12])
class TestTables10To12:
    """The printed mu* starts at the diameter just before a participation, and charges for it.

    Projection caps the distance after that step too, so a start just after it is valid and
    cheaper: `account` is a little below print.
    """

    def test_printed_from_its_own_start(self, table):
        batches = table["parameters"]["batches"]
        for (sensitivity, step_size), (_, printed) in table["cyclic_bounded"].items():
            arrival = step_size * sensitivity
            pattern = np.zeros(math.ceil(1 / arrival) * batches + 1)
            pattern[::batches] = arrival
            plan = li.optimal_shifts(
                contraction=1.0, sensitivity=pattern, noise=3 * step_size, start=1.0
            )
            assert round(plan.mu, 3) == printed

    def test_account_is_a_little_below_print(self, table):
        batches = table["parameters"]["batches"]
        for (sensitivity, step_size), (_, printed) in table["cyclic_bounded"].items():
            run = quadratic(
                li.Cyclic(batches, 1), 10**6 * batches, sensitivity=sensitivity, noise_std=3.0,
                step_size=step_size, domain=li.Ball(1.0),
            )  # fmt: skip
            mu = li.account(run).gdp()
            assert printed * 0.97 < mu < printed + 5e-4
            # R participations after the start, the last of them alone.
            arrival = step_size * sensitivity
            energies = [
                (1 + (later - 1) * arrival) ** 2 / (later * batches - 1) + arrival**2
                for later in range(1, 4 * math.ceil(1 / arrival))
            ]
            assert mu == pytest.approx(math.sqrt(min(energies)) / (3 * step_size), rel=1e-9)


class TestSampled:
    """Theorems which ours should not lose to."""

    @pytest.mark.slow
    def test_strongly_convex(self):
        run = readme_run(li.SampledWithoutReplacement, 2000, 0.2)
        theirs = li.account(run, bounds=f"{PAPER}/sampled-strongly-convex").epsilon(1e-5)
        general = li.account(run, bounds=f"{PAPER}/sampled-shifts").epsilon(1e-5)
        composed = li.account(run, bounds="composition/sampled").epsilon(1e-5)
        ours = li.account(run, bounds="random-order").epsilon(1e-5)
        assert ours < 0.5 * theirs
        assert general <= theirs * (1 + 1e-6)
        assert theirs < 0.5 * composed

    @pytest.mark.slow
    def test_bounded_domain(self):
        run = readme_run(li.SampledWithoutReplacement, 1000, 0.0, domain=li.Ball(0.002))
        theirs = li.account(run, bounds=f"{PAPER}/sampled-bounded-domain").epsilon(1e-5)
        ours = li.account(run, bounds="random-order").epsilon(1e-5)
        composed = li.account(run, bounds="composition/sampled").epsilon(1e-5)
        assert ours < theirs < composed

    def test_one_step_is_the_theorem_by_hand(self):
        # T = 1: nothing earlier, so C_p(G(2 beta r)) and C_p(G(2 r)) for any beta > 1.
        run = readme_run(li.SampledWithoutReplacement, 1).replace(steps=1)
        theirs = li.account(run, bounds=f"{PAPER}/sampled-strongly-convex").delta(0.5)
        twice = run.replace(noise_std=run.noise_std / 2, steps=2)
        least = li.account(twice, bounds="composition/sampled").delta(0.5)
        assert least * (1 - 1e-6) <= theirs <= 1.1 * least

    @pytest.mark.parametrize("change", [{"adjacency": "zero-out"}, {"noise_std": 1e-6}])
    def test_says_why_not(self, change):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(**change)
        with pytest.raises(li.NoBoundApplies, match="sampled-strongly-convex"):
            li.account(run, bounds=f"{PAPER}/sampled-strongly-convex")
