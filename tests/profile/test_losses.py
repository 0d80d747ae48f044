"""Normal results moved by hidden amounts, against integrals written out."""

import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.special import ndtr

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses

LAWS = {
    "rarely": ([0.0, 1.0], [0.999, 0.001]),
    "always": ([0.7], [1.0]),
    "several": ([0.0, 0.3, 0.9, 2.0], [0.5, 0.3, 0.15, 0.05]),
    "far": ([0.0, 6.0], [0.9, 0.1]),
    "hardly": ([0.0, 0.01], [0.3, 0.7]),
}


def losses_of(levels, masses=(1.0,), **how):
    return shift_losses(np.array(levels), np.array(masses), **how)


def profile_of(levels, masses=(1.0,), times=1, lost=0.0, **how):
    return SummedLossesProfile([Repeated(losses_of(levels, masses, **how), times)], lost=lost)


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
@pytest.mark.parametrize("levels, masses", LAWS.values(), ids=LAWS)
def test_one_result(levels, masses, two_sided):
    profile = profile_of(levels, masses, two_sided=two_sided)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0):
        truth = exact(levels, masses, two_sided, epsilon)
        assert truth <= profile.delta(epsilon)
        if truth > 1e-9:
            assert profile.delta(epsilon) <= 1.02 * truth + 1e-5 * max(masses[-1], 1e-3)


class TestComposition:
    @pytest.mark.parametrize(
        "parts",
        [
            *([(mu, times)] for mu in (1e-7, 1e-3, 0.1, 0.5) for times in (1, 3, 50, 400)),
            [(0.3, 2), (0.1, 5), (1.0, 1)],
        ],
    )
    def test_of_gaussians(self, parts):
        profile = SummedLossesProfile([Repeated(losses_of([mu]), k) for mu, k in parts])
        truth = li.GaussianProfile(math.sqrt(sum(k * mu * mu for mu, k in parts)))
        for delta, room in ((1e-2, 1.005), (1e-5, 1.005), (1e-9, 1.005), (1e-12, 1.02)):
            assert truth.epsilon(delta) <= profile.epsilon(delta) <= room * truth.epsilon(delta)

    def test_of_sampled_steps_as_dp_accounting_says(self):
        ours = profile_of([0.0, 0.5], [0.9, 0.1], times=100)
        theirs = from_gaussian_mechanism(2.0, sampling_prob=0.1).self_compose(100)
        for delta in (1e-3, 1e-6, 1e-9):
            found = theirs.get_epsilon_for_delta(delta)
            assert ours.epsilon(delta) == pytest.approx(found, rel=5e-3)


class TestLimits:
    @pytest.mark.parametrize(
        "profile, epsilon, low, high",
        [
            (profile_of([0.0], [0.99]), 50.0, 0.01, 0.011),  # missing mass may be anything
            # Amounts too large are infinite.
            (profile_of([0.0, 1e9], [0.999, 0.001], times=3), 50.0, 0.0029, 0.0031),
            (profile_of([0.1], lost=0.2), 5.0, 0.2, 0.21),
        ],
    )
    def test_what_is_lost_is_added(self, profile, epsilon, low, high):
        assert low <= profile.delta(epsilon) <= high

    def test_mostly_lost_promises_nothing(self):
        profile = profile_of([0.0], [0.1])
        assert profile.epsilon(0.5) == profile.renyi(2.0) == profile.gdp() == math.inf

    @pytest.mark.parametrize("level", [-1.0, math.nan])
    def test_refuses_what_is_no_law(self, level):
        with pytest.raises(InvalidParameter, match="at least 0"):
            losses_of([level])
