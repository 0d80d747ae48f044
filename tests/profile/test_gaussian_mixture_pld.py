"""Normal results moved by hidden amounts, against integrals written out."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses

EPSILONS = (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0)
LAWS = {
    "rarely": ([0.0, 1.0], [0.999, 0.001]),
    "always": ([0.7], [1.0]),
    "several": ([0.0, 0.3, 0.9, 2.0], [0.5, 0.3, 0.15, 0.05]),
    "far": ([0.0, 6.0], [0.9, 0.1]),
    "hardly": ([0.0, 0.01], [0.3, 0.7]),
}


def exact(levels, masses, two_sided, epsilon):
    """The worse direction, by thresholds on a fine grid: from below, and close."""
    z = np.linspace(-12.0, max(levels) + 12.0, 40_001)
    levels, masses = np.array(levels), np.array(masses)
    ours = ndtr(levels - z[:, None]) @ masses
    theirs = ndtr(-levels - z[:, None]) @ masses if two_sided else ndtr(-z)
    above = ours - math.exp(epsilon) * theirs
    below = (1.0 - theirs) - math.exp(epsilon) * (1.0 - ours)
    return max(float(above.max()), float(below.max()), 0.0)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("name", LAWS)
def test_one_result(name, two_sided):
    levels, masses = LAWS[name]
    losses = shift_losses(np.array(levels), np.array(masses), two_sided=two_sided)
    profile = SummedLossesProfile([Repeated(losses, 1)])
    for epsilon in EPSILONS:
        truth = exact(levels, masses, two_sided, epsilon)
        assert truth <= profile.delta(epsilon)
        if truth > 1e-9:
            assert profile.delta(epsilon) <= 1.02 * truth + 1e-5 * max(masses[-1], 1e-3)


@pytest.mark.parametrize("times", [1, 3, 50, 400])
@pytest.mark.parametrize("mu", [1e-7, 1e-3, 0.1, 0.5])
def test_gaussians_compose_as_they_must(mu, times):
    one = shift_losses(np.array([mu]), np.ones(1))
    profile = SummedLossesProfile([Repeated(one, times)])
    truth = li.GaussianProfile(mu * math.sqrt(times))
    for delta in (1e-2, 1e-5, 1e-9):
        assert truth.epsilon(delta) <= profile.epsilon(delta) <= 1.005 * truth.epsilon(delta)
    assert truth.epsilon(1e-12) <= profile.epsilon(1e-12) <= 1.02 * truth.epsilon(1e-12)


def test_different_results_compose():
    parts = [(0.3, 2), (0.1, 5), (1.0, 1)]
    results = [Repeated(shift_losses(np.array([mu]), np.ones(1)), k) for mu, k in parts]
    truth = li.GaussianProfile(math.sqrt(sum(k * mu * mu for mu, k in parts)))
    for delta in (1e-3, 1e-6, 1e-10):
        found = SummedLossesProfile(results).epsilon(delta)
        assert truth.epsilon(delta) <= found <= 1.005 * truth.epsilon(delta)


def test_sampled_steps_compose_as_others_say():
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    losses = shift_losses(np.array([0.0, 0.5]), np.array([0.9, 0.1]))
    ours = SummedLossesProfile([Repeated(losses, 100)])
    theirs = from_gaussian_mechanism(2.0, sampling_prob=0.1).self_compose(100)
    for delta in (1e-3, 1e-6, 1e-9):
        found = theirs.get_epsilon_for_delta(delta)
        assert ours.epsilon(delta) == pytest.approx(found, rel=5e-3)


class TestLimits:
    def test_what_is_missing_may_be_anything(self):
        losses = shift_losses(np.array([0.0]), np.array([0.99]))
        assert SummedLossesProfile([Repeated(losses, 1)]).delta(50.0) >= 0.01

    def test_amounts_too_large_are_infinite(self):
        losses = shift_losses(np.array([0.0, 1e9]), np.array([0.999, 0.001]))
        profile = SummedLossesProfile([Repeated(losses, 3)])
        assert 0.0029 < profile.delta(50.0) < 0.0031

    def test_mostly_lost_promises_nothing(self):
        losses = shift_losses(np.array([0.0]), np.array([0.1]))
        assert SummedLossesProfile([Repeated(losses, 1)]).epsilon(0.5) == math.inf

    def test_more_is_never_cheaper(self):
        def delta(level, epsilon):
            losses = shift_losses(np.array([0.0, level]), np.array([0.9, 0.1]))
            return SummedLossesProfile([Repeated(losses, 4)]).delta(epsilon)

        for epsilon in (0.1, 1.0):
            found = [delta(level, epsilon) for level in (0.1, 0.5, 1.0, 2.0, 4.0, 30.0)]
            assert found == sorted(found)

    def test_lost_is_added(self):
        losses = shift_losses(np.array([0.1]), np.ones(1))
        assert SummedLossesProfile([Repeated(losses, 1)], lost=0.2).delta(5.0) >= 0.2

    def test_refuses_what_is_no_law(self):
        with pytest.raises(InvalidParameter, match="at least 0"):
            shift_losses(np.array([-1.0]), np.ones(1))
        with pytest.raises(InvalidParameter, match="at least 0"):
            shift_losses(np.array([math.nan]), np.ones(1))

    def test_promises_no_divergence(self):
        losses = shift_losses(np.array([0.1]), np.ones(1))
        profile = SummedLossesProfile([Repeated(losses, 1)])
        assert profile.renyi(2.0) == profile.gdp() == math.inf
