"""Lower bounds of a guarantee: what a pair of laws, or a test, shows, rounded down."""

import math

import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.profile.lower import (
    BestLowerProfile,
    LowerProfile,
    MeansLowerProfile,
    OneTestLowerProfile,
    PerturbedLowerProfile,
)
from tests.reference import gaussian


class TestMeans:
    @pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 5.0, 40.0])
    def test_a_single_mean_is_the_gaussian_pair_rounded_down(self, mu):
        lower, upper = MeansLowerProfile([1.0], [mu]), li.GaussianProfile(mu)
        for epsilon in (0.0, 0.1, 1.0, 5.0, 20.0):
            exact = float(gaussian.delta_of_gaussian(mu, epsilon))
            assert lower.delta(epsilon) <= exact
            assert lower.delta(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)
        for delta in (1e-8, 1e-3, 0.2):
            assert lower.epsilon(delta) <= upper.epsilon(delta)
            if upper.epsilon(delta) < 600:
                assert lower.epsilon(delta) == pytest.approx(upper.epsilon(delta), abs=1e-6)
        assert lower.gdp() == mu

    def test_a_mixture_of_equal_means_is_one_and_missing_weight_tells_nothing(self):
        one, two = MeansLowerProfile([1.0], [1.0]), MeansLowerProfile([0.5, 0.5], [1.0, 1.0])
        assert two.epsilon(1e-5) == pytest.approx(one.epsilon(1e-5), rel=1e-3)
        assert two.epsilon(1e-5) <= one.epsilon(1e-5)
        assert two.gdp() == pytest.approx(1.0, rel=1e-6)
        whole, part = MeansLowerProfile([1.0], [2.0]), MeansLowerProfile([0.3], [2.0])
        assert 0.0 < part.epsilon(1e-3) < whole.epsilon(1e-3)


class TestPerturbed:
    @pytest.mark.parametrize("lost", [0.0, 1e-9, 1e-3])
    def test_is_the_exact_one_less_what_is_lost(self, lost):
        profile = PerturbedLowerProfile(MeansLowerProfile([1.0], [1.5]), lost)
        for epsilon in (0.0, 1.0, 3.0):
            exact = ndtr(0.75 - epsilon / 1.5) - math.exp(epsilon) * ndtr(-0.75 - epsilon / 1.5)
            known = max(0.0, exact - lost * (1.0 + math.exp(epsilon)))
            assert profile.delta(epsilon) <= known
            assert profile.delta(epsilon) == pytest.approx(known, rel=1e-9, abs=1e-12)
        assert profile.delta(profile.epsilon(0.01)) >= 0.01 * (1 - 1e-9)
        assert profile.gdp() <= 1.5

    def test_certainly_lost_tells_nothing(self):
        profile = PerturbedLowerProfile(MeansLowerProfile([1.0], [3.0]), 1.0)
        assert profile.delta(0.0) == profile.epsilon(0.1) == profile.gdp() == 0.0


def test_a_test_is_read_in_both_directions():
    profile = OneTestLowerProfile(fpr=0.01, power=0.5)
    assert profile.delta(0.0) == pytest.approx(0.49)
    assert profile.epsilon(0.1) == pytest.approx(math.log(0.4 / 0.01))
    other = OneTestLowerProfile(fpr=0.5, power=0.99)
    assert other.epsilon(0.1) == pytest.approx(math.log(0.4 / 0.01))
    assert OneTestLowerProfile(fpr=0.5, power=0.5).epsilon(0.0) == 0.0


def test_of_none_nothing():
    nothing = BestLowerProfile(())
    assert nothing.epsilon(1e-5) == nothing.delta(0.0) == nothing.gdp() == 0.0
    assert nothing.tests()[0].size == 1


def test_they_are_no_guarantees():
    assert not issubclass(LowerProfile, li.PrivacyProfile)
    with pytest.raises(li.InvalidParameter):
        li.compose(MeansLowerProfile([1.0], [1.0]))


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_refusals(value):
    with pytest.raises(li.InvalidParameter, match="epsilon must be"):
        MeansLowerProfile([1.0], [1.0]).delta(value)
    with pytest.raises(li.InvalidParameter, match="delta must be"):
        OneTestLowerProfile(0.1, 0.2).epsilon(value)
    with pytest.raises(ValueError, match="at most 1"):
        MeansLowerProfile([0.7, 0.7], [1.0, 1.0])
