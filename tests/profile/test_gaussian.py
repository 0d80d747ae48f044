"""Gaussian profiles against the definition in multiprecision."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianProfile, PrivacyProfile
from tests.reference.gaussian import (
    delta_of_gaussian,
    epsilon_of_gaussian,
    renyi_of_gaussian,
    tradeoff_of_gaussian,
)

mus = st.floats(-3, 3).map(lambda x: 10.0**x)
deltas = st.one_of(
    st.floats(-300, -0.302).map(lambda x: 10.0**x), st.floats(1e-6, 0.5), st.just(1e-5)
)


class TestSoundness:
    """What leaves is on the safe side of the definition at 60 digits."""

    @given(mus, deltas)
    def test_epsilon_meets_delta(self, mu, delta):
        assert delta_of_gaussian(mu, GaussianProfile(mu).epsilon(delta)) <= delta

    @pytest.mark.slow
    @pytest.mark.parametrize("mu", np.geomspace(1e-3, 1e3, 60))
    def test_epsilon_meets_delta_on_a_grid(self, mu):
        for delta in np.geomspace(1e-300, 0.5, 60):
            assert delta_of_gaussian(mu, GaussianProfile(mu).epsilon(delta)) <= delta

    @given(mus, st.one_of(st.floats(0, 50), st.floats(0, 1e6), st.just(0.0)))
    def test_delta_is_not_below_the_definition(self, mu, epsilon):
        assert GaussianProfile(mu).delta(epsilon) >= delta_of_gaussian(mu, epsilon)

    @given(st.floats(-9, 2).map(lambda x: 10.0**x), st.floats(-300, 0).map(lambda x: 10.0**x))
    def test_tradeoff_is_not_above_the_definition(self, mu, fpr):
        assert GaussianProfile(mu).tradeoff(fpr) <= tradeoff_of_gaussian(mu, fpr)

    @given(mus, st.floats(1, 1e6))
    def test_renyi_is_not_below_the_definition(self, mu, order):
        assert GaussianProfile(mu).renyi(order) >= renyi_of_gaussian(mu, order)


class TestTightness:
    @pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0, 1e3])
    @pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.3])
    def test_epsilon_is_the_least(self, mu, delta):
        exact = float(epsilon_of_gaussian(mu, delta))
        assert GaussianProfile(mu).epsilon(delta) == pytest.approx(exact, rel=1e-12, abs=1e-14)

    @given(mus, st.floats(0, 5))
    def test_delta_is_near_the_definition(self, mu, ratio):
        exact = delta_of_gaussian(mu, ratio * mu)
        assert GaussianProfile(mu).delta(ratio * mu) == pytest.approx(float(exact), rel=1e-10)

    @given(mus, st.floats(1e-12, 1 - 1e-12))
    def test_tradeoff_is_near_the_definition(self, mu, fpr):
        exact = float(tradeoff_of_gaussian(mu, fpr))
        assert GaussianProfile(mu).tradeoff(fpr) == pytest.approx(exact, rel=1e-9, abs=1e-300)

    @given(st.floats(0.01, 8), st.floats(1e-6, 0.999))
    def test_the_curve_alone_gives_the_same_tradeoff(self, mu, fpr):
        profile = GaussianProfile(mu)
        generic = PrivacyProfile._tradeoff_at(profile, fpr)
        assert profile.tradeoff(fpr) * (1 - 1e-4) - 1e-9 <= generic <= profile.tradeoff(fpr) + 1e-12


class TestLimits:
    def test_no_noise_promises_nothing(self):
        profile = GaussianProfile(math.inf)
        assert (profile.epsilon(0.5), profile.delta(9.0), profile.tradeoff(0.5)) == (math.inf, 1, 0)
        assert profile.epsilon(1.0) == 0.0

    def test_no_sensitivity_leaks_nothing(self):
        profile = GaussianProfile(0.0)
        assert (profile.epsilon(0.0), profile.delta(0.0), profile.renyi(5.0)) == (0, 0, 0)
        assert profile.tradeoff(0.25) == pytest.approx(0.75, rel=1e-12)

    def test_never_zero_where_the_definition_is_positive(self):
        assert GaussianProfile(0.01).delta(1e9) > 0.0
        assert GaussianProfile(1.0).delta(math.inf) > 0.0

    def test_pure_privacy_is_out_of_reach(self):
        assert GaussianProfile(1e-3).epsilon(0.0) == math.inf

    def test_delta_so_large_that_epsilon_is_zero(self):
        assert GaussianProfile(0.1).epsilon(0.04) == 0.0

    def test_advantage_is_total_variation(self):
        with mp.workdps(40):
            exact = mp.erf(mpf("0.5") / mp.sqrt(2))
        assert GaussianProfile(1.0).advantage() == pytest.approx(float(exact), rel=1e-13)

    def test_the_ends_of_the_tradeoff(self):
        assert (GaussianProfile(1.0).tradeoff(0.0), GaussianProfile(1.0).tradeoff(1.0)) == (1, 0)


class TestMonotonicity:
    @given(mus, st.floats(1.0, 2.0), deltas)
    def test_more_mu_more_epsilon(self, mu, factor, delta):
        less, more = GaussianProfile(mu), GaussianProfile(mu * factor)
        assert more.epsilon(delta) >= less.epsilon(delta) * (1 - 1e-12)


class TestRefusals:
    @pytest.mark.parametrize("method", ["epsilon", "tradeoff"])
    @pytest.mark.parametrize("value", [math.nan, -0.1, 1.1, "x", None])
    def test_probabilities(self, method, value):
        name = "delta" if method == "epsilon" else "fpr"
        with pytest.raises(InvalidParameter, match=rf"{name} must be a number in \[0, 1\]; got"):
            getattr(GaussianProfile(1.0), method)(value)

    @pytest.mark.parametrize("value", [math.nan, -1.0, "x"])
    def test_epsilon(self, value):
        with pytest.raises(InvalidParameter, match=r"epsilon must be a number in \[0, inf\]; got"):
            GaussianProfile(1.0).delta(value)

    @pytest.mark.parametrize("value", [math.nan, 0.99, -1.0, "x"])
    def test_order(self, value):
        with pytest.raises(InvalidParameter, match=r"order must be a number in \[1, inf\]; got"):
            GaussianProfile(1.0).renyi(value)

    @pytest.mark.parametrize("value", [math.nan, -1.0, "x", True])
    def test_mu(self, value):
        with pytest.raises(InvalidParameter, match=r"mu must be a number in \[0, inf\]; got"):
            GaussianProfile(value)
