"""Gaussian profiles and mixtures of them, against the definition in multiprecision."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate._numerics.rounding import ulps
from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianMixtureProfile, GaussianProfile, PrivacyProfile
from lastiterate.profile.gaussian import normal_cells
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

    @settings(max_examples=60)
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

    @settings(max_examples=50)
    @given(st.floats(-9, 2).map(lambda x: 10.0**x), st.floats(-300, 0).map(lambda x: 10.0**x))
    def test_tradeoff_is_not_above_the_definition(self, mu, fpr):
        assert GaussianProfile(mu).tradeoff(fpr) <= tradeoff_of_gaussian(mu, fpr)

    @given(mus, st.floats(1, 1e6))
    def test_renyi_is_not_below_the_definition(self, mu, order):
        assert GaussianProfile(mu).renyi(order) >= renyi_of_gaussian(mu, order)


class TestTightness:
    @pytest.mark.parametrize("mu", [1e-3, 1.0, 1e3])
    @pytest.mark.parametrize("delta", [1e-300, 1e-5, 0.3])
    def test_epsilon_is_the_least(self, mu, delta):
        exact = float(epsilon_of_gaussian(mu, delta))
        assert GaussianProfile(mu).epsilon(delta) == pytest.approx(exact, rel=1e-12, abs=1e-14)

    @given(mus, st.floats(0, 5))
    def test_delta_is_near_the_definition(self, mu, ratio):
        exact = delta_of_gaussian(mu, ratio * mu)
        assert GaussianProfile(mu).delta(ratio * mu) == pytest.approx(float(exact), rel=1e-10)

    @settings(max_examples=50)
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

    def test_ends_of_the_curves(self):
        assert GaussianProfile(0.01).delta(1e9) > 0.0  # where the definition is positive
        assert GaussianProfile(1.0).delta(math.inf) > 0.0
        assert GaussianProfile(1e-3).epsilon(0.0) == math.inf  # not purely private
        assert GaussianProfile(0.1).epsilon(0.04) == 0.0
        assert [GaussianProfile(1.0).tradeoff(fpr) for fpr in (0.0, 1.0)] == [1, 0]

    def test_advantage_is_total_variation(self):
        with mp.workdps(40):
            exact = mp.erf(mpf("0.5") / mp.sqrt(2))
        assert GaussianProfile(1.0).advantage() == pytest.approx(float(exact), rel=1e-13)


class TestRefusals:
    @pytest.mark.parametrize(
        "method, name, span, values",
        [
            ("epsilon", "delta", r"\[0, 1\]", [math.nan, -0.1, 1.1, "x", None]),
            ("tradeoff", "fpr", r"\[0, 1\]", [math.nan, -0.1, 1.1, "x", None]),
            ("delta", "epsilon", r"\[0, inf\]", [math.nan, -1.0, "x"]),
            ("renyi", "order", r"\[1, inf\]", [math.nan, 0.99, -1.0, "x"]),
        ],
    )
    def test_of_arguments(self, method, name, span, values):
        for value in values:
            with pytest.raises(InvalidParameter, match=rf"{name} must be a number in {span}; got"):
                getattr(GaussianProfile(1.0), method)(value)

    @pytest.mark.parametrize("value", [math.nan, -1.0, "x", True])
    def test_of_mu(self, value):
        with pytest.raises(InvalidParameter, match=r"mu must be a number in \[0, inf\]; got"):
            GaussianProfile(value)


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

    @pytest.mark.parametrize("weight", [1 / 7, 1 / 7 - 1e-10, 1 / 7 + 1e-10])
    def test_renyi_of_equal_parts_is_theirs(self, weight):
        for mu, order in product((1e-6, 1e-3, 1.0), (1.0, 1.0000001, 2.0, 100.0)):
            exact = order * mu * mu / 2
            found = GaussianMixtureProfile([weight] * 7, [mu] * 7).renyi(order)
            assert exact <= found <= exact * (1 + 1e-12)

    def test_tradeoff_is_worse_than_the_better_part(self):
        assert 0 < self.MIXED.tradeoff(0.1) < GaussianProfile(0.5).tradeoff(0.1)
        assert self.MIXED.tradeoff(0.1) > GaussianProfile(2.0).tradeoff(0.1)

    @pytest.mark.parametrize("weights", [[0.5, 0.4], [1.5, -0.5], [math.nan, 1.0], [1.0], "ab"])
    def test_refuses_weights_that_are_none(self, weights):
        with pytest.raises(InvalidParameter, match="weights"):
            GaussianMixtureProfile(weights, [1.0, 2.0])

    def test_what_weights_lack_beyond_the_lost_is_lost_too(self):
        profile = GaussianMixtureProfile([1.0 - 6e-10], [0.07], lost=1e-10)
        assert profile.lost >= 6e-10
        assert profile.delta(50.0) >= 6e-10

    def test_what_is_added_to_it_is_not_rounded_away(self):
        profile = GaussianMixtureProfile([0.99], [0.07], lost=0.01)
        assert profile.delta(5.0) > 0.01


@pytest.mark.parametrize("start", [-30.0, -9.0, -0.5, 0.0, 2.0, 8.0, 30.0])
@pytest.mark.parametrize("width", [1e-3, 0.25, 3.0])
def test_cells_err_by_a_few_ulps_of_the_tail(start, width):
    edges = np.array([start, start + width])
    ((mass,), (tail,)) = normal_cells(edges, edges[:-1] + edges[1:] > 0.0)
    with mpmath.workdps(300):  # differences of numbers that agree in 200 digits
        first, last = (mpmath.erfc(edge / mpmath.sqrt(2)) / 2 for edge in edges.tolist())
        exact, smaller = float(first - last), float(min(first, 1 - last))
    assert tail == pytest.approx(smaller, rel=1e-13)
    # The exponential of x^2/2 makes tails lose ulps with x^2.
    assert abs(mass - exact) <= ulps(16.0 + 4.0 * float(edges[1]) ** 2) * tail
