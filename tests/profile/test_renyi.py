"""Renyi, zCDP and pure guarantees, each against the mechanism that it should contain."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianProfile, PureProfile, RenyiProfile, ZCDPProfile

mus = st.floats(-2, 1.3).map(lambda x: 10.0**x)


class TestRenyi:
    @given(mus, st.floats(-30, -0.5).map(lambda x: 10.0**x))
    @settings(max_examples=30)
    def test_not_below_the_gaussian_with_these_divergences(self, mu, delta):
        exact = GaussianProfile(mu).epsilon(delta)
        for profile in (ZCDPProfile(mu * mu / 2), RenyiProfile(lambda a: a * mu * mu / 2)):
            assert profile.epsilon(delta) >= exact * (1 - 1e-12)

    def test_near_it_for_small_delta(self):
        exact = GaussianProfile(1.0).epsilon(1e-30)
        assert ZCDPProfile(0.5).epsilon(1e-30) <= 1.02 * exact

    def test_known_conversion(self):
        # delta = exp((a-1)(R - eps)) (1/a) (1 - 1/a)^(a-1), one order only.
        profile = RenyiProfile(lambda a: 0.5 if a == 3.0 else math.inf)
        only = RenyiProfile(lambda a: 0.5 if 2.9 < a < 3.1 else math.inf)
        bound = math.exp(2 * (0.5 - 4.0)) / 3 * (2 / 3) ** 2
        assert only.delta(4.0) <= bound * 1.3
        assert profile.delta(4.0) in (1.0, pytest.approx(bound))

    def test_the_exact_bun_steinke_factor_helps_for_large_rho(self):
        rho, epsilon = 4.0, 20.0
        excess = (epsilon - rho) / (2 * rho)
        plain = math.exp(-(excess**2) * rho)
        assert ZCDPProfile(rho).delta(epsilon) < plain / (1 + excess)

    @pytest.mark.parametrize("value", [math.nan, -1.0])
    def test_a_failed_divergence_promises_nothing(self, value):
        profile = RenyiProfile(lambda order: value)
        assert profile.renyi(2.0) == math.inf
        assert profile.epsilon(1e-5) == math.inf

    def test_the_farthest_epsilon(self):
        assert 0.0 < ZCDPProfile(1.0).delta(math.inf) < 1e-300
        assert 0.0 < ZCDPProfile(1.0).delta(1e308) < 1e-300

    def test_no_gaussian_follows(self):
        assert ZCDPProfile(0.5).gdp() == math.inf
        assert ZCDPProfile(0.0).gdp() == 0.0


class TestPure:
    @pytest.mark.parametrize("limit", [1e-6, 0.3, 2.0, 30.0, 900.0])
    def test_randomised_response(self, limit):
        profile = PureProfile(limit)
        assert profile.epsilon(0.0) == limit
        assert profile.delta(limit) == 0.0
        assert profile.delta(0.0) == pytest.approx(math.tanh(limit / 2), rel=1e-9)
        yes = 1 / (1 + math.exp(-limit))
        if limit < 20:
            moment = yes**3 * (1 - yes) ** -2 + (1 - yes) ** 3 * yes**-2
            assert profile.renyi(3.0) == pytest.approx(math.log(moment) / 2, rel=1e-6)
        assert profile.renyi(1.0) <= profile.renyi(2.0) <= profile.renyi(math.inf) == limit
        gaussian = GaussianProfile(profile.gdp())
        for epsilon in (0.0, limit / 2, limit * 0.99):
            assert gaussian.delta(epsilon) >= profile.delta(epsilon) * (1 - 1e-9)

    def test_gaussian_guarantee_in_sixty_digits(self):
        with mp.workdps(60):
            for limit in (digit * 10.0**k for k in range(-28, 3) for digit in (1.7, 4.3)):
                half = mpf(PureProfile(limit).gdp()) / 2
                assert mp.erfc(half / mp.sqrt(2)) / 2 <= 1 / (1 + mp.exp(mpf(limit)))

    def test_ends(self):
        assert PureProfile(5e-324).gdp() > 0.0
        assert PureProfile(0.0).gdp() == PureProfile(0.0).delta(0.0) == 0.0
        assert PureProfile(math.inf).delta(5.0) == 1.0
        with pytest.raises(InvalidParameter, match="limit must be"):
            PureProfile(math.nan)
