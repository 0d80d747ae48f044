"""Computed results: no guarantee of theirs is better than the triangle, nor much worse."""

import math

import mpmath
import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.profile import BestProfile, GaussianProfile, PureProfile
from lastiterate.profile.compose import compose, compose_with_gaussian
from lastiterate.profile.group import for_group, for_pair
from lastiterate.profile.rounded import RoundedProfile, Rounding

EPSILONS = np.array([0.0, 1e-7, 1e-3, 0.1, 1.0, 4.0, 20.0])


def gaussian_delta(mu, epsilon):
    """In many digits, at any epsilon."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    upper = mpmath.ncdf(mu / 2 - epsilon / mu)
    return upper - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def triangle(mu, kappa, between, failure, epsilon):
    left = mpmath.mpf(epsilon) - 2 * kappa
    return (
        mpmath.exp(kappa) * gaussian_delta(mu, left)
        + (1 + mpmath.exp(left + kappa)) * gaussian_delta(between, kappa)
        + (1 + mpmath.exp(left + 2 * kappa)) * failure
    )


class TestSoundness:
    @pytest.mark.parametrize("failure", [0.0, 1e-18, 1e-9])
    @pytest.mark.parametrize("between", [1e-8, 1e-4, 1e-2, 0.3])
    @pytest.mark.parametrize("mu", [0.3])
    def test_never_below_the_least_of_all_triangles(self, mu, between, failure):
        """Every kappa of a fine grid gives a valid bound; ours is one of them, rounded up."""
        found = RoundedProfile(GaussianProfile(mu), Rounding(between, failure)).deltas(EPSILONS)
        for epsilon, delta in zip(EPSILONS, found, strict=True):
            # No true curve rises: far out, the bound at a smaller epsilon holds as well.
            places = [epsilon] if epsilon <= 16.0 else [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, epsilon]
            least = min(
                triangle(mu, mpmath.mpf(k) / 8 * between, between, failure, place)
                for k in range(8, 100)
                for place in places
            )
            # What is left of epsilon is rounded down, which is a bound at a smaller one.
            assert delta >= min(least, 1) * (1 - mpmath.mpf(10) ** -7)

    @pytest.mark.parametrize("between", [1e-6, 1e-3, 0.05])
    def test_never_below_what_gaussians_tell(self, between):
        """Of Gaussians that are computed as far apart as may be, the exact answer is known."""
        for mu in (0.05, 0.5, 2.0):
            found = RoundedProfile(GaussianProfile(mu), Rounding(between, 0.0)).deltas(EPSILONS)
            exact = [gaussian_delta(mu + 2 * between, epsilon) for epsilon in EPSILONS]
            assert all(a >= b for a, b in zip(found, exact, strict=True))

    def test_a_failure_is_part_of_every_delta(self):
        profile = RoundedProfile(PureProfile(0.5), Rounding(0.0, 1e-6))
        assert profile.delta(0.5) >= (1 + math.exp(0.5)) * 1e-6
        assert profile.delta(10.0) >= (1 + math.exp(10.0)) * 1e-6
        assert (1 + math.exp(0.5)) * 1e-6 <= profile.delta(1e4) < 1e-5
        assert profile.epsilon(1e-7) == math.inf
        assert profile.renyi(2.0) == math.inf
        assert profile.gdp() == math.inf


class TestGroups:
    COMPUTED = RoundedProfile(GaussianProfile(0.3), Rounding(1e-6, 1e-18))

    @pytest.mark.parametrize(
        "group", [for_group(COMPUTED, 3), for_group(BestProfile([COMPUTED]), 3), for_pair(COMPUTED)]
    )
    def test_keep_the_failure(self, group):
        assert group.renyi(2.0) == group.gdp() == math.inf
        for whole in (group, compose(group, BestProfile([GaussianProfile(0.1)]))):
            assert whole.delta(60.0) >= 1e-18
            assert whole.epsilon(1e-19) == math.inf

    def test_count_the_distance_once(self):
        exact = for_group(GaussianProfile(0.3), 3)
        assert for_group(self.COMPUTED, 3).epsilon(1e-5) <= exact.epsilon(1e-5) + 2e-5

    def test_losses_are_no_less(self):
        losses = self.COMPUTED.to_pld(discretization=1e-3)
        for epsilon in (0.0, 0.1, 1.0, 5.0, 60.0):
            assert losses.get_delta_for_epsilon(epsilon) >= 1e-18
        assert losses.get_epsilon_for_delta(1e-5) >= self.COMPUTED.epsilon(1e-5) - 1e-9


class TestTightness:
    @pytest.mark.parametrize("mu, between, rise", [(0.27, 7.4e-7, 1e-5), (0.27, 2e-8, 1e-6)])
    def test_costs_little(self, mu, between, rise):
        exact = GaussianProfile(mu)
        computed = RoundedProfile(exact, Rounding(between, 1e-17))
        assert exact.epsilon(1e-5) < computed.epsilon(1e-5) <= exact.epsilon(1e-5) + rise

    def test_nothing_is_nothing(self):
        exact = GaussianProfile(0.5)
        computed = RoundedProfile(exact, Rounding(0.0, 0.0))
        np.testing.assert_allclose(
            computed.deltas(EPSILONS), exact.deltas(EPSILONS), rtol=1e-8, atol=1e-300
        )
        assert computed.renyi(3.0) == exact.renyi(3.0)
        assert math.isclose(computed.gdp(), exact.gdp())


class TestComposition:
    def test_the_triangle_comes_last(self):
        one = RoundedProfile(GaussianProfile(0.3), Rounding(3e-6, 1e-18))
        other = RoundedProfile(GaussianProfile(0.4), Rounding(4e-6, 2e-18))
        for both in (compose(one, other), compose(BestProfile([one, one]), other)):
            assert isinstance(both, RoundedProfile)
            assert math.isclose(both.exact.gdp(), 0.5)
            assert math.isclose(both.rounding.mu, 5e-6)
            assert math.isclose(both.rounding.failure, 3e-18)

    def test_what_is_exact_adds_no_distance(self):
        one = RoundedProfile(GaussianProfile(0.3), Rounding(3e-6, 1e-18))
        for both in (compose(one, GaussianProfile(0.4)), compose_with_gaussian(one, 0.4)):
            assert math.isclose(both.exact.gdp(), 0.5)
            assert math.isclose(both.rounding.mu, 3e-6)


class TestLimits:
    def test_an_unknown_distance_promises_nothing(self):
        profile = RoundedProfile(GaussianProfile(0.1), Rounding(math.inf, 0.0))
        assert profile.deltas(EPSILONS).tolist() == [1.0] * EPSILONS.size
        assert profile.gdp() == math.inf

    def test_two_distances_are_hypotenuse_and_sum(self):
        both = Rounding(3e-6, 1e-18).beside(Rounding(4e-6, 2e-18))
        assert 5e-6 <= both.mu <= 5e-6 * (1 + 1e-12)
        assert 3e-18 <= both.failure <= 3e-18 * (1 + 1e-12)

    @pytest.mark.parametrize("mu, failure", [(-1.0, 0.0), (math.nan, 0.0), (0.0, 2.0)])
    def test_refusals(self, mu, failure):
        with pytest.raises(InvalidParameter):
            Rounding(mu, failure)

    def test_deltas_fall(self):
        found = RoundedProfile(GaussianProfile(0.4), Rounding(1e-4, 1e-12)).deltas(
            np.linspace(0.0, 5.0, 400)
        )
        # Until failures weigh more than what falls.
        assert (np.diff(found[found > 1e-9]) <= 0.0).all()
