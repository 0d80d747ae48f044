"""Newer theorems of the same kind, held to their own formulas; ours is never above them."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import lastiterate as li
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
from lastiterate.bounds.published.steinke_et_al import DELTA, linear_delta
from tests.reference.newer_papers import iteration_rdp, linear_heuristic_delta

ITERATION = CATALOGUE["published/feldman-mironov-talwar-thakurta/one-pass"]
LINEAR = APPROXIMATIONS["published/steinke-et-al/linear-estimate"]


def one_pass(rng, **changes):
    n = int(rng.integers(1, 30))
    given = {
        "loss": li.Loss(smoothness=1.0, strong_convexity=float(rng.choice([0.0, 0.2]))),
        "sensitivity": 2 * float(rng.uniform(0.1, 2.0)),
        "batches": li.Cyclic(n, 1),
        "steps": n,
        "step_size": float(rng.uniform(0.1, 1.9)),
        "noise_std": float(rng.uniform(0.3, 3.0)),
        "domain": li.Ball(float(rng.uniform(0.5, 5.0))) if rng.random() < 0.5 else li.Unbounded(),
    }
    return li.TrainingRun(**(given | changes))


class TestIteration:
    @pytest.mark.parametrize("seed", range(10))
    def test_is_its_formula(self, seed):
        run = one_pass(np.random.default_rng(seed))
        symbols = {"n": run.steps, "L": run.sensitivity / 2, "sigma": run.noise_std}
        for alpha in (1.5, 8.0):
            found = [profile.renyi(alpha) for profile in ITERATION.by_position(run)]
            expected = [iteration_rdp(alpha, t + 1, **symbols) for t in range(run.steps)]
            assert found == pytest.approx(expected, rel=1e-9)
            assert ITERATION.profile(run).renyi(alpha) == found[-1]

    @pytest.mark.parametrize("seed", range(10))
    def test_ours_is_never_above(self, seed):
        run = one_pass(np.random.default_rng(seed))
        ours = CATALOGUE["fixed-order/convex"].by_position(run)
        for mine, theirs in zip(ours, ITERATION.by_position(run), strict=True):
            assert mine.gdp() <= math.sqrt(2 * theirs.rho) * (1 + 1e-9)

    def test_more_than_one_pass_is_refused(self):
        run = one_pass(np.random.default_rng(0))
        assert ITERATION.unmet(run.replace(steps=run.steps + 1))


class TestLinearHeuristic:
    @pytest.mark.parametrize("T, q, sigma", [(1, 0.3, 1.0), (20, 0.1, 0.7), (60, 0.5, 2.0)])
    def test_is_its_formula(self, T, q, sigma):
        counts = np.arange(T + 1)
        chances, means = binom.pmf(counts, T, q), counts / (sigma * math.sqrt(T))
        for epsilon in (0.1, 1.0, 2.0):
            expected = linear_heuristic_delta(epsilon, T=T, q=q, sigma=sigma)
            assert linear_delta(means, chances, epsilon) == pytest.approx(expected, abs=1e-7)

    def test_has_its_epsilon_at_one_delta_and_no_epsilon_of_its_own(self):
        run = li.TrainingRun.from_dp_sgd(
            examples=100, batch_size=20, steps=30, clip_norm=1.0, noise_multiplier=2.0,
            step_size=0.1,
        )  # fmt: skip
        estimate = LINEAR.estimate(run)
        epsilon = li.GaussianProfile(estimate.mu).epsilon(DELTA)
        again = linear_heuristic_delta(epsilon, T=30, q=0.2, sigma=2.0)
        assert again == pytest.approx(DELTA, rel=1e-3)
        assert not hasattr(estimate, "epsilon")

    def test_full_batches_are_one_gaussian(self):
        run = one_pass(np.random.default_rng(0), batches=li.FullBatch(10), steps=25)
        ratio = run.sensitivity / 10 / run.noise_std
        assert LINEAR.estimate(run).mu == pytest.approx(5 * ratio)

    def test_is_never_accounted(self):
        assert LINEAR.id not in CATALOGUE
