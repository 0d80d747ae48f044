"""Balls and bins in short steps: what is charged, and accounts below those of later shifts."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import lastiterate as li
from lastiterate.bounds.balls_and_bins import mixtures as module
from lastiterate.bounds.balls_and_bins.mixtures import pairs_of
from lastiterate.bounds.fixed_order.short_steps import equal_short_steps
from lastiterate.bounds.shuffling.proof_search import MixtureSearch
from tests.bounds.shuffling.test_balls_and_bins import RULES
from tests.bounds.shuffling.test_early_transport import readme_run

EARLY = "random-order/balls-and-bins/early-mixture"
WINDOWED = "random-order/balls-and-bins/windowed-mixture"
RUNS = [(rule, adjacency) for rule in RULES for adjacency in ("zero-out", "replace")]


class TestWhatIsCharged:
    @pytest.mark.parametrize("rule, adjacency", RUNS)
    @pytest.mark.parametrize("outputs", [1, 10])
    def test_steps_lose_what_large_batches_curve_and_what_gradients_drift(
        self, rule, adjacency, outputs
    ):
        """l' = 1 - eta M' - c kappa with K examples in a batch, the differing one included."""
        run = readme_run(rule, adjacency, outputs=outputs)
        draws = 97 if rule is li.BallsAndBins else run.steps
        for one in module.limited_batches(run):
            curvature = one.short_steps.curvature
            size = (curvature / 0.5 - 0.01) * 512 / 0.25
            assert size == pytest.approx(round(size), abs=1e-6)
            others = round(size) - 1
            larger = draws * binom.sf(others, 49_999, 512 / 50_000)
            assert larger <= one.exceeded < 100.0 * larger
            q = math.sqrt(2.0 * math.log(run.steps / one.short_steps.failure))
            kappa = 0.5 * 0.25 / 512 * (math.sqrt(outputs) + q + 0.8)
            lost = curvature + (1.0 - 0.5 * 0.01) * kappa
            assert lost <= one.short_steps.lost(0.8) <= lost + 1e-9
            windows = one.parts[0][1].windows(np.array([0, 8]), np.arange(5), 0.9, 1.0, 0.7)
            kappa = 0.5 * 0.25 / 512 * (math.sqrt(outputs) + q + 1.0 + 0.7)
            lost = curvature + (1.0 - 0.5 * 0.01) * kappa
            assert lost <= windows.lost <= lost + 1e-9

    @pytest.mark.parametrize("rule, adjacency", RUNS)
    def test_failures_count_in_both_data_sets(self, rule, adjacency):
        """tau of the first law, and e^epsilon times tau of the second."""
        run, failure = readme_run(rule, adjacency), 1e-7
        one, *_ = module.limited_batches(run)
        often = replace(one, short_steps=replace(one.short_steps, failure=failure))
        limits = [module.bounded(run, limit) for limit in (one, often)]
        epsilons = np.array([0.5, 2.0, 4.0])
        seldom, more = (limit.without_windows.deltas(epsilons) for limit in limits)
        charged = failure * (1.0 + np.exp(epsilons))
        assert np.all(more >= seldom + 0.999 * charged)
        assert np.all(more <= seldom + 1.001 * charged)
        for pair in pairs_of(run):
            found = [
                MixtureSearch(pair, [limit], early=True)(2.0, 0.5).delta(2.0) for limit in limits
            ]
            assert found[1] - found[0] == pytest.approx(failure * (1.0 + math.exp(2.0)), rel=1e-3)


class TestAccounts:
    @pytest.mark.parametrize(
        "rule, adjacency, most",
        [
            (li.BallsAndBins, "zero-out", 0.81),
            (li.BallsAndBins, "replace", 1.68),
            (li.BallsAndBinsEachEpoch, "zero-out", 0.80),
            (li.BallsAndBinsEachEpoch, "replace", 1.68),
        ],
    )
    def test_short_steps_hide_draws(self, rule, adjacency, most):
        report = li.account(readme_run(rule, adjacency))
        assert report.lower.epsilon(1e-5) < report.epsilon(1e-5) <= most

    @pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
    @pytest.mark.parametrize("rule", RULES)
    def test_it_is_below_mixtures_by_later_shifts(self, rule, adjacency):
        for step_size in (0.1, 1.5, 2.8):
            run = readme_run(rule, adjacency, step_size=step_size)
            report = li.account(run, bounds=[EARLY, WINDOWED])
            early, later = (report.all[id_].epsilon(1e-5) for id_ in (EARLY, WINDOWED))
            assert early <= later * 1.002

    def test_it_is_no_gaussian_guarantee(self):
        profile = module.bin_early_mixture(readme_run(li.BallsAndBins, "zero-out"))
        assert math.isinf(profile.gdp())
        assert math.isinf(profile.renyi(2.0))
        assert profile.usual.delta(20.0) >= 1e-15 * math.exp(20.0)
        assert pickle.loads(pickle.dumps(profile)).epsilon(1e-5) == profile.epsilon(1e-5)

    def test_small_deltas_are_those_of_later_shifts(self):
        report = li.account(readme_run(li.BallsAndBins, "zero-out"), bounds=[EARLY, WINDOWED])
        assert report.all[EARLY].epsilon(1e-13) <= report.all[WINDOWED].epsilon(1e-13) < math.inf
        assert report.all[EARLY].epsilon(1e-5) < 0.8 * report.all[WINDOWED].epsilon(1e-5)

    @pytest.mark.parametrize("rule", RULES)
    def test_unknown_outputs_long_steps_and_balls_change_nothing(self, rule):
        unknown = readme_run(rule, "replace", outputs=None)
        long = readme_run(rule, "replace", step_size=4.0)
        ball = readme_run(rule, "replace", domain=li.Ball(diameter=100.0))
        for run in (unknown, long, ball):
            assert module.BIN_EARLY_MIXTURE.unmet(run)
            assert equal_short_steps(run) is None
        known = li.account(readme_run(rule, "replace"), bounds=WINDOWED).epsilon(1e-5)
        assert li.account(unknown).epsilon(1e-5) == known
        # Steps on the largest batches may lose all noise.
        barely = readme_run(rule, "replace", step_size=3.8)
        assert not module.limited_batches(barely)
        found = [li.account(barely, bounds=id_).epsilon(1e-5) for id_ in (EARLY, WINDOWED)]
        assert found[0] == found[1]
