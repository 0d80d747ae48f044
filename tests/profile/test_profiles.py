"""Renyi, mixed, best and discretised profiles, each against the Gaussian it should contain."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.profile import (
    BestProfile,
    GaussianMixtureProfile,
    GaussianProfile,
    RenyiProfile,
    ZCDPProfile,
)
from tests.reference.gaussian import delta_of_gaussian

mus = st.floats(-2, 1.3).map(lambda x: 10.0**x)


class TestLostProbability:
    def test_what_weights_lack_beyond_the_lost_is_lost_too(self):
        profile = GaussianMixtureProfile([1.0 - 6e-10], [0.07], lost=1e-10)
        assert profile.lost >= 6e-10
        assert profile.delta(50.0) >= 6e-10

    def test_what_is_added_to_it_is_not_rounded_away(self):
        profile = GaussianMixtureProfile([0.99], [0.07], lost=0.01)
        assert profile.delta(5.0) > 0.01


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


class TestMixture:
    MIXED = GaussianMixtureProfile([0.25, 0.75], [2.0, 0.5])

    @given(st.floats(0, 20))
    def test_delta_is_the_average(self, epsilon):
        exact = delta_of_gaussian(2.0, epsilon) / 4 + 3 * delta_of_gaussian(0.5, epsilon) / 4
        assert exact <= self.MIXED.delta(epsilon) <= exact * (1 + 1e-10) + 1e-300

    def test_epsilon_lies_between(self):
        low, high = (GaussianProfile(mu).epsilon(1e-5) for mu in (0.5, 2.0))
        assert low < self.MIXED.epsilon(1e-5) < high

    def test_gdp_is_the_largest_with_weight(self):
        assert self.MIXED.gdp() == 2.0
        alone = GaussianMixtureProfile([0.0, 1.0], [9.0, 0.5])
        assert alone.gdp() == 0.5

    def test_renyi_is_between_the_average_and_the_largest(self):
        parts = [GaussianProfile(mu).renyi(4.0) for mu in (2.0, 0.5)]
        assert parts[0] / 4 + 3 * parts[1] / 4 <= self.MIXED.renyi(4.0) <= parts[0]
        exact = math.log(0.25 * math.exp(3 * parts[0]) + 0.75 * math.exp(3 * parts[1])) / 3
        assert self.MIXED.renyi(4.0) == pytest.approx(exact, rel=1e-13)

    @pytest.mark.parametrize("weights", [[1 / 7] * 7, [1 / 7 - 1e-10] * 7, [1 / 7 + 1e-10] * 7])
    @pytest.mark.parametrize("order", [1.0, 1.0000001, 2.0, 100.0])
    @pytest.mark.parametrize("mu", [1e-6, 1e-3, 1.0])
    def test_renyi_of_equal_parts_is_theirs(self, weights, order, mu):
        mixed = GaussianMixtureProfile(weights, [mu] * 7)
        exact = order * mu * mu / 2
        assert exact <= mixed.renyi(order) <= exact * (1 + 1e-12)

    def test_tradeoff_is_worse_than_the_better_part(self):
        assert 0 < self.MIXED.tradeoff(0.1) < GaussianProfile(0.5).tradeoff(0.1)
        assert self.MIXED.tradeoff(0.1) > GaussianProfile(2.0).tradeoff(0.1)

    @pytest.mark.parametrize("weights", [[0.5, 0.4], [1.5, -0.5], [math.nan, 1.0], [1.0], "ab"])
    def test_refuses_weights_that_are_none(self, weights):
        with pytest.raises(InvalidParameter, match="weights"):
            GaussianMixtureProfile(weights, [1.0, 2.0])


class TestBest:
    def test_is_the_best_at_every_point(self):
        gaussian, renyi = GaussianProfile(1.0), ZCDPProfile(0.4)
        best = BestProfile([gaussian, renyi])
        for delta in (1e-2, 1e-5, 1e-20):
            assert best.epsilon(delta) == min(gaussian.epsilon(delta), renyi.epsilon(delta))
        assert best.delta(3.0) == min(gaussian.delta(3.0), renyi.delta(3.0))
        assert best.tradeoff(0.05) == max(gaussian.tradeoff(0.05), renyi.tradeoff(0.05))
        assert (best.gdp(), best.renyi(2.0)) == (1.0, min(gaussian.renyi(2.0), renyi.renyi(2.0)))

    @pytest.mark.parametrize("profiles", [[], [1.0], None])
    def test_refuses_what_is_no_profile(self, profiles):
        with pytest.raises(InvalidParameter, match="profiles must be"):
            BestProfile(profiles)


class TestLossDistribution:
    @pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
    def test_discretising_is_pessimistic_and_near(self, mu):
        profile = li.from_pld(GaussianProfile(mu).to_pld())
        for epsilon in np.linspace(0.0, 5 * mu, 12):
            exact = delta_of_gaussian(mu, epsilon)
            assert exact <= profile.delta(epsilon) <= exact * 1.01 + 1e-7
        assert profile.epsilon(1e-6) == pytest.approx(GaussianProfile(mu).epsilon(1e-6), rel=1e-2)

    def test_agrees_with_dp_accounting(self):
        pld = privacy_loss_distribution.from_gaussian_mechanism(0.7)
        profile = li.from_pld(pld)
        for delta in (1e-2, 1e-5, 1e-7):
            assert profile.epsilon(delta) == pytest.approx(
                pld.get_epsilon_for_delta(delta), rel=1e-4
            )
            assert profile.delta(2.0) == pytest.approx(pld.get_delta_for_epsilon(2.0), rel=1e-8)

    def test_the_object_comes_back(self):
        pld = privacy_loss_distribution.from_laplace_mechanism(1.0)
        assert li.from_pld(pld).to_pld() is pld
        assert li.from_pld(pld).pld is pld

    def test_both_directions_count(self):
        pld = privacy_loss_distribution.from_gaussian_mechanism(1.0, sampling_prob=0.1)
        expected = max(pmf.get_delta_for_epsilon(0.5) for pmf in (pld._pmf_remove, pld._pmf_add))
        assert li.from_pld(pld).delta(0.5) == pytest.approx(expected, abs=1e-10)

    def test_divergence_of_randomised_response(self):
        pld = privacy_loss_distribution.from_two_probability_mass_functions(
            {0: math.log(0.75), 1: math.log(0.25)},
            {0: math.log(0.25), 1: math.log(0.75)},
            value_discretization_interval=1e-4,
        )
        exact = math.log(0.75**3 / 0.25**2 + 0.25**3 / 0.75**2) / 2
        assert exact <= li.from_pld(pld).renyi(3.0) <= exact * 1.001
        kl = 0.75 * math.log(3) - 0.25 * math.log(3)
        assert kl <= li.from_pld(pld).renyi(1.0) <= kl * 1.001

    def test_below_its_rounding_it_promises_nothing(self):
        profile = li.from_pld(privacy_loss_distribution.from_gaussian_mechanism(1.0))
        assert profile.epsilon(1e-25) == math.inf
        assert profile.gdp() == math.inf

    def test_refuses_optimistic_ones(self):
        pld = privacy_loss_distribution.from_gaussian_mechanism(1.0, pessimistic_estimate=False)
        with pytest.raises(InvalidParameter, match="pessimistic_estimate=True"):
            li.from_pld(pld)
        with pytest.raises(InvalidParameter, match="pld must be"):
            li.from_pld(3.0)

    def test_refuses_cells_too_small_to_hold(self):
        with pytest.raises(InvalidParameter, match="discretization must be at least"):
            GaussianProfile(100.0).to_pld(discretization=1e-6)


class TestComposition:
    @given(mus, mus)
    def test_gaussians_compose_exactly(self, one, other):
        mu = li.compose(GaussianProfile(one), GaussianProfile(other)).gdp()
        assert math.hypot(one, other) <= mu <= math.hypot(one, other) * (1 + 1e-14)

    def test_through_loss_distributions_is_near_and_not_below(self):
        hidden = [GaussianMixtureProfile([1.0], [mu]) for mu in (0.6, 0.8)]
        composed = li.compose(*hidden)
        for delta in (1e-3, 1e-6):
            exact = GaussianProfile(1.0).epsilon(delta)
            assert exact <= composed.epsilon(delta) <= exact * 1.001

    def test_renyi_divergences_add_up(self):
        composed = li.compose(RenyiProfile(lambda a: 0.1 * a), GaussianProfile(1.0))
        assert composed.renyi(3.0) == pytest.approx(0.3 + 1.5, rel=1e-12)
        linear = li.compose(ZCDPProfile(0.1), GaussianProfile(1.0))
        assert linear.renyi(3.0) == pytest.approx(0.3 + 1.5, rel=1e-12)

    def test_a_run_with_another_mechanism(self):
        laplace = li.from_pld(privacy_loss_distribution.from_laplace_mechanism(5.0))
        composed = GaussianProfile(0.5).compose(laplace)
        alone = GaussianProfile(0.5).epsilon(1e-5)
        assert alone < composed.epsilon(1e-5) <= alone + 0.2 + 1e-3

    def test_the_best_of_two_composes_below_each(self):
        best = BestProfile([GaussianProfile(1.0), GaussianMixtureProfile([1.0], [0.9])])
        composed = best.compose(best)
        assert composed.epsilon(1e-5) <= GaussianProfile(math.sqrt(2)).epsilon(1e-5)
        assert composed.epsilon(1e-5) >= GaussianProfile(0.9 * math.sqrt(2)).epsilon(1e-5)

    def test_a_part_that_promises_nothing(self):
        nothing = GaussianMixtureProfile([1.0], [math.inf])
        assert li.compose(nothing, nothing).epsilon(0.5) == math.inf

    def test_losses_too_large_for_the_usual_cells(self):
        hidden = GaussianMixtureProfile([1.0], [40.0])
        exact = GaussianProfile(40.0 * math.sqrt(2)).epsilon(1e-5)
        assert exact <= li.compose(hidden, hidden).epsilon(1e-5) <= exact * 1.01

    def test_cells_of_different_sizes(self):
        coarse, fine = (
            li.from_pld(
                privacy_loss_distribution.from_gaussian_mechanism(
                    1.0, value_discretization_interval=size
                )
            )
            for size in (1e-3, 1e-4)
        )
        exact = GaussianProfile(math.sqrt(2)).epsilon(1e-5)
        assert exact <= li.compose(coarse, fine).epsilon(1e-5) <= exact * 1.01

    def test_one_alone_is_itself(self):
        assert li.compose(GaussianProfile(1.0)) == GaussianProfile(1.0)

    def test_refuses_what_is_no_profile(self):
        with pytest.raises(InvalidParameter, match="at least one"):
            li.compose()
        with pytest.raises(InvalidParameter, match="PrivacyProfiles"):
            li.compose(GaussianProfile(1.0), 1.0)


PROFILES = {
    "gaussian": GaussianProfile(1.0),
    "zcdp": ZCDPProfile(0.5),
    "best": BestProfile([GaussianProfile(1.0), ZCDPProfile(0.1)]),
}


class TestTradeoffAtManyRates:
    RATES = np.array([[0.0, 0.05, 0.3], [0.5, 0.99, 1.0]])

    @pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
    def test_is_that_at_each_of_them_in_the_same_shape(self, profile):
        found = profile.tradeoff(self.RATES)
        assert found.shape == self.RATES.shape
        one_by_one = [profile.tradeoff(float(rate)) for rate in self.RATES.ravel()]
        assert found.ravel().tolist() == one_by_one
        assert profile.tradeoff([0.3]).tolist() == [profile.tradeoff(0.3)]
        assert profile.tradeoff(np.zeros((0, 2))).shape == (0, 2)
        assert isinstance(profile.tradeoff(np.float64(0.3)), float)
        assert isinstance(profile.tradeoff(np.array(0.3)), float)

    @pytest.mark.parametrize("wrong", [[0.1, 1.1], [0.1, np.nan], ["a"], [True], [0.1, None]])
    def test_refusals(self, wrong):
        with pytest.raises(InvalidParameter, match="fpr must be a number in"):
            GaussianProfile(1.0).tradeoff(wrong)
