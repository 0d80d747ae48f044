"""A guarantee beside a Gaussian one: against compositions that are known exactly."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from lastiterate.profile import GaussianMixtureProfile, GaussianProfile, PureProfile
from lastiterate.profile.compose import compose_with_gaussian

DELTAS = [1e-2, 1e-5, 1e-9]


def gaussian_curve(mu, gamma):
    """H_gamma of N(mu, 1) and N(0, 1), for any gamma > 0."""
    log = math.log(gamma)
    return norm.sf(log / mu - mu / 2) - gamma * norm.sf(log / mu + mu / 2)


def response_and_gaussian(limit, mu, epsilon):
    """Randomised response, the worst that is (limit, 0)-private, beside a Gaussian."""
    p = math.exp(limit) / (1 + math.exp(limit))
    gamma = math.exp(epsilon)
    return p * gaussian_curve(mu, gamma * (1 - p) / p) + (1 - p) * gaussian_curve(
        mu, gamma * p / (1 - p)
    )


@pytest.mark.parametrize("mu", [0.01, 0.23, 1.0, 4.0])
@pytest.mark.parametrize("part", [1e-6, 0.1, 0.5, 1.0, 3.0])
def test_gaussians_add_in_squares(mu, part):
    """A mixture of one part is taken for any curve, and is a Gaussian one."""
    both = compose_with_gaussian(GaussianMixtureProfile([1.0], [mu]), part * mu)
    exact = GaussianProfile(math.hypot(mu, part * mu))
    assert both.gdp() == pytest.approx(exact.mu, rel=1e-12)
    assert both.renyi(3.0) == pytest.approx(exact.renyi(3.0), rel=1e-9)
    for delta in DELTAS:
        assert exact.epsilon(delta) * (1 - 1e-9) <= both.epsilon(delta)
        assert both.epsilon(delta) <= exact.epsilon(delta) * 1.03 + 1e-12
    direct = compose_with_gaussian(GaussianProfile(mu), part * mu)
    assert direct.epsilon(1e-5) == pytest.approx(exact.epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize("limit", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_beside_randomised_response(limit, mu):
    both = compose_with_gaussian(PureProfile(limit), mu)
    for epsilon in (0.0, 0.3 * limit, limit, limit + mu, limit + 4 * mu):
        exact = response_and_gaussian(limit, mu, epsilon)
        found = both.delta(epsilon)
        assert exact * (1 - 1e-9) - 1e-15 <= found
        assert found <= exact * 1.1 + 1e-12


@pytest.mark.parametrize("mu", [14.0, 16.0, 25.0, 37.0, 39.0, 60.0, 1_000.0])
def test_very_many_standard_deviations_beside_it(mu):
    """Where e^-loss is below all numbers: still an upper bound, and never nan."""
    both = compose_with_gaussian(GaussianMixtureProfile([1.0], [1.0]), mu)
    exact = GaussianProfile(math.hypot(1.0, mu))
    for delta in DELTAS:
        assert exact.epsilon(delta) <= both.epsilon(delta) <= exact.epsilon(delta) * 1.01
    for epsilon in (0.0, mu * mu / 2, mu * mu / 2 + 4 * mu):
        assert exact.delta(epsilon) * (1 - 1e-9) <= both.delta(epsilon) <= 1.0


@pytest.mark.parametrize("mu", [1e-3, 1e-5, 1e-8, 1e-11, 1e-13, 1e-15, 1e-17])
def test_next_to_nothing_beside_it(mu):
    """Just above the limit, delta is that of the Gaussian alone, times the larger chance."""
    for units in (0.5, 1.0, 3.0):
        epsilon = 1.0 + units * mu
        with mpmath.workdps(60):
            exact = exact_response_and_gaussian(1.0, mu, epsilon)
        found = compose_with_gaussian(PureProfile(1.0), mu).delta(epsilon)
        assert float(exact) * (1 - 1e-9) <= found <= 1.0


def exact_response_and_gaussian(limit, mu, epsilon):
    limit, mu, gamma = mpmath.mpf(limit), mpmath.mpf(mu), mpmath.exp(mpmath.mpf(epsilon))
    p = mpmath.exp(limit) / (1 + mpmath.exp(limit))

    def curve(gamma):
        log = mpmath.log(gamma)
        return mpmath.ncdf(mu / 2 - log / mu) - gamma * mpmath.ncdf(-log / mu - mu / 2)

    return p * curve(gamma * (1 - p) / p) + (1 - p) * curve(gamma * p / (1 - p))


def test_no_other_release_changes_nothing():
    profile = GaussianMixtureProfile([0.5, 0.5], [0.5, 1.0])
    assert compose_with_gaussian(profile, 0.0) is profile
    assert compose_with_gaussian(profile, math.inf).epsilon(1e-5) == math.inf


def test_less_with_more():
    profile = GaussianMixtureProfile([0.9, 0.1], [0.1, 1.0])
    epsilons = [
        compose_with_gaussian(profile, mu).epsilon(1e-5) for mu in np.geomspace(1e-3, 3, 12)
    ]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] >= profile.epsilon(1e-5)


@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_an_infinite_epsilon_leaves_what_is_lost(lost):
    found = compose_with_gaussian(GaussianMixtureProfile([1.0 - lost], [1.0], lost=lost), 0.5)
    assert lost <= found.delta(math.inf) <= lost + 1e-6
