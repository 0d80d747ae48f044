"""Batches drawn anew on a bounded domain, whose steps may expand."""

import math
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.subsampling import window_average
from tests.bounds.lines import EPSILONS, RUN, largest_share, of_orders, some_run
from tests.slow import slow_if

SAMPLED = RECORDS["random-order/sampled/average-non-convex"]
POISSON = RECORDS["random-order/poisson/average-non-convex"]
SETTING = RUN.replace(batches=li.SampledWithoutReplacement(12, 4))


class TestSoundness:
    @pytest.mark.parametrize("seed", slow_if(bool, range(12)))
    @pytest.mark.parametrize("bound", [SAMPLED, POISSON], ids=lambda bound: bound.id)
    def test_exact_instances(self, bound, seed):
        rng = np.random.default_rng(seed)
        runs = [
            some_run(
                rng, bound.covers[0], sizes=(1, 3), epochs=6,
                release_noise_std=float(rng.choice([0.0, 0.5])),
            )
            for _ in range(12)
        ]  # fmt: skip

        def alone(line):  # in batches of any size only the example has a gradient
            line.others = line.others * (bound is SAMPLED)

        assert largest_share(bound, runs, rng, alone) > 0.15  # else they would say nothing


class TestTightness:
    @pytest.mark.parametrize("steps", [1, 4, 7])
    def test_few_steps_are_the_average_over_all_participations(self, steps):
        """But for the grid, and from the first step on."""
        run = SETTING.replace(
            loss=li.Loss(smoothness=3.0, convex=False), steps=steps, noise_std=1.0,
            domain=li.Ball(1e6), release_noise_std=0.02)  # fmt: skip
        share, each = run.batches.share, list(product([False, True], repeat=steps))
        exactly = of_orders(
            run,
            [
                (share ** sum(seen) * (1 - share) ** (steps - sum(seen)), np.flatnonzero(seen) + 1)
                for seen in each
            ],
        )
        found = np.array([SAMPLED.profile(run).delta(epsilon) for epsilon in EPSILONS])
        assert np.all(found >= exactly * (1 - 1e-9))
        assert np.all(found <= 1.02 * exactly + 1e-9)

    def test_the_setting_of_reshuffled_runs(self):
        assert SAMPLED.profile(SETTING).epsilon(1e-5) <= 2.56
        worst = li.account(SETTING, bounds="fixed-order/non-convex").epsilon(1e-5)
        assert SAMPLED.profile(SETTING).epsilon(1e-5) < worst
        longer = SAMPLED.profile(SETTING.replace(steps=50_000)).epsilon(1e-5)
        assert longer == pytest.approx(SAMPLED.profile(SETTING).epsilon(1e-5), rel=1e-6)

    def test_hoelder_gradients(self):
        run = SETTING.replace(loss=li.Loss(convex=False, lipschitz=2.0, holder=(0.5, 0.5)))
        assert SAMPLED.profile(run).epsilon(1e-5) < 4.0

    @pytest.mark.parametrize("smoothness", [0.01, 1.0, 10.0])
    def test_rare_participations_leave_the_diameter(self, smoothness):
        rare = SETTING.replace(
            loss=li.Loss(smoothness=smoothness, convex=False),
            batches=li.SampledWithoutReplacement(12_000, 4),
            sensitivity=0.01,
            steps=10_000,
        )
        # D/noise over the square root of c^-2 + c^-4 + .., for as many steps as a window has.
        found, c = SAMPLED.profile(rare).epsilon(1e-5), 1 + 0.1 * smoothness
        steps = np.arange(1.0, window_average._LONGEST_WINDOW + 1)
        least = li.GaussianProfile(1 / math.sqrt((c ** (-2 * steps)).sum())).epsilon(1e-5)
        assert least <= found <= 1.05 * least


class TestBatchesOfRandomSize:
    def test_larger_batches_expand_more(self):
        run = RUN.replace(batches=li.PoissonSampled(1_000, 100), sensitivity=0.4)
        fixed = run.replace(batches=li.SampledWithoutReplacement(1_000, 100))
        ours, theirs = POISSON.profile(run), SAMPLED.profile(fixed)
        assert theirs.epsilon(1e-5) < ours.epsilon(1e-5) < 2 * theirs.epsilon(1e-5)

    def test_a_batch_that_is_too_large_costs_delta(self):
        run = RUN.replace(batches=li.PoissonSampled(1_000, 100), sensitivity=0.4)
        assert POISSON.profile(run).delta(50.0) >= window_average._CHARGED_FAILURE
        cut = run.replace(batches=li.PoissonSampled(1_000, 100, largest_batch=100))
        assert POISSON.profile(cut).delta(50.0) < 1e-15


class TestRefusals:
    @pytest.mark.parametrize("bound", [SAMPLED, POISSON], ids=lambda bound: bound.id)
    def test_no_ball(self, bound):
        run = SETTING.replace(batches=bound.covers[0](12, 4))
        assert not bound.unmet(run)
        assert bound.unmet(run.replace(domain=li.Unbounded()))
        assert bound.unmet(run.replace(releases="every-iterate"))
