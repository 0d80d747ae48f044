"""Langevin chains: their guarantees, their limits, and the sampler."""

import math
import os

import numpy as np
import pytest

import lastiterate as li
from lastiterate.profile import PureProfile
from lastiterate.train import noise
from lastiterate.train.noise import DuplicatedRandomness, SecureBits
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map


def chain(**changes):
    settings = {
        "smoothness": 2.0, "strong_convexity": 0.5, "sensitivity": 0.8, "step_size": 0.1,
        "steps": 300,
    }  # fmt: skip
    return li.langevin(**{**settings, **changes})


class TestGuarantees:
    def test_proposition_5_1_in_the_limit(self):
        c = chain(steps=10**6)
        printed = math.sqrt((2 - 0.1 * 0.5) / 2) * 0.8 / math.sqrt(0.5)
        assert c.privacy.gdp() == pytest.approx(printed, rel=1e-9)
        assert c.stationary.gdp() == pytest.approx(printed, rel=1e-12)
        assert chain().privacy.gdp() <= c.stationary.gdp()

    def test_corollary_5_2_is_the_limit_of_short_steps(self):
        assert chain().exponential_mechanism.gdp() == pytest.approx(0.8 / math.sqrt(0.5))
        short = chain(step_size=1e-6).stationary.gdp()
        assert short == pytest.approx(chain().exponential_mechanism.gdp(), rel=1e-5)

    def test_exact_for_a_gaussian(self):
        """grad F = m x against m x - L: by pushing both densities."""
        c = chain(steps=8, smoothness=0.5)
        steps = tuple(
            Step(linear_map(0.95), linear_map(0.95, 0.1 * 0.8), math.sqrt(0.2)) for _ in range(8)
        )
        pair = exact_pair(Instance(0.0, steps))
        for epsilon in (0.0, 0.2, 1.0):
            assert c.privacy.delta(epsilon) == pytest.approx(pair.delta(epsilon), abs=1e-9)

    def test_corollary_5_4(self):
        """F and F' each L-Lipschitz: their difference 2 L."""
        L, D, eta = 1.5, 2.0, 0.1
        c = chain(strong_convexity=0.0, sensitivity=2 * L, domain=li.Ball(D), step_size=eta)
        assert c.stationary.gdp() == pytest.approx(math.sqrt(4 * L * D + 2 * eta * L**2))
        mechanism = c.exponential_mechanism
        assert mechanism.gdp() == pytest.approx(2 * math.sqrt(L * D))
        assert mechanism.epsilon(0.0) == pytest.approx(2 * L * D)
        long = chain(
            strong_convexity=0.0, sensitivity=2 * L, domain=li.Ball(D), step_size=eta, steps=10**7
        )
        assert long.privacy.gdp() <= c.stationary.gdp() * (1 + 1e-9)

    def test_section_d_4_where_the_two_cross(self):
        """Pure privacy is the better while L D < .676 (theirs), 1.353 here."""

        def better(LD):
            return PureProfile(2 * LD).gdp() <= 2 * math.sqrt(LD)

        assert better(0.676)
        assert not better(0.677)

    def test_a_bounded_domain_only_helps(self):
        assert chain(domain=li.Ball(0.1)).stationary.gdp() < chain().stationary.gdp()
        assert chain(domain=li.Ball(1e9)).stationary.gdp() == chain().stationary.gdp()


class TestSampler:
    def test_draws_from_the_density(self):
        """A Gaussian of precision 2, at stationarity of the chain: variance 1/(m - eta m^2/2)."""
        c = li.langevin(
            smoothness=2.0, strong_convexity=2.0, sensitivity=1.0, step_size=0.1, steps=60
        )
        draws = c.sample(lambda x: 2 * x, np.zeros(4000), random_state=1)
        assert draws.var() == pytest.approx(1 / (2 - 0.1 * 4 / 2), rel=0.06)
        assert abs(draws.mean()) < 0.05

    def test_stays_in_the_domain(self):
        c = chain(domain=li.Ball(1.0), steps=40)
        for seed in range(5):
            x = c.sample(lambda x: 0.5 * x, [3.0, 4.0], random_state=seed)
            assert np.linalg.norm(x - [3.0, 4.0]) <= 0.5 + 2.0**-24  # the grid

    def test_noise_is_the_accounted_one(self):
        c = chain(steps=1)
        draws = c.sample(lambda x: 0 * x, np.zeros(20_000), random_state=3)
        assert draws.std() == pytest.approx(c.run.step_size * c.run.noise_std, rel=0.02)

    def test_without_a_seed_noise_comes_from_the_trainers_generator(self, monkeypatch):
        first, second = (chain(steps=2).sample(lambda x: x, [0.0]) for _ in range(2))
        assert first != second
        secure = SecureBits()
        monkeypatch.setattr(noise, "SecureBits", lambda: secure)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(DuplicatedRandomness, match="fork"):
            chain(steps=2).sample(lambda x: x, [0.0])

    def test_a_draw_is_rounded_to_a_grid_far_below_the_noise(self):
        draw = chain(steps=3, step_size=0.5).sample(lambda x: x, np.zeros(50), random_state=0)
        grid = 2.0**-40  # of noise 1
        np.testing.assert_array_equal(draw / grid, np.rint(draw / grid))
        assert (draw / grid % 2).any()

    @pytest.mark.parametrize(
        "gradient, start, match",
        [
            (None, [0.0], "gradient must be"),
            (lambda x: x[:1], [0.0, 1.0], r"found one of shape \(1,\)"),
            (lambda x: x * math.nan, [0.0], "found a number that is not finite"),
            (lambda x: x, [math.inf], "start must be"),
        ],
    )
    def test_refusals(self, gradient, start, match):
        with pytest.raises(li.InvalidParameter, match=match):
            chain(steps=1).sample(gradient, start, random_state=0)

    @pytest.mark.parametrize("size, says", [(1.1, "at most 2/smoothness"), (math.nan, "must be")])
    def test_long_steps_are_refused(self, size, says):
        with pytest.raises(li.InvalidParameter, match=f"step_size.* {says}"):
            chain(step_size=size)

    @pytest.mark.parametrize("law", ["exponential_mechanism", "stationary"])
    def test_no_law_without_curvature_or_domain(self, law):
        with pytest.raises(li.InvalidParameter, match="no law to draw from"):
            getattr(chain(strong_convexity=0.0), law)
