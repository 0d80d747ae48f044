"""Composition: of Gaussians exactly, of others never below what convolution gives, and near."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
    from_laplace_mechanism,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.profile import (
    BestProfile,
    GaussianMixtureProfile,
    GaussianProfile,
    PureProfile,
    RenyiProfile,
    ZCDPProfile,
    pld,
)
from lastiterate.profile.compose import (
    MixtureCompositionProfile,
    compose_with_gaussian,
    compose_with_mixture,
)

DELTAS = [1e-2, 1e-5, 1e-9]
EPSILONS = [0.0, 0.2, 0.7, 1.5, 3.0, 5.0]
mus = st.floats(-2, 1.3).map(lambda x: 10.0**x)


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
        laplace = li.from_pld(from_laplace_mechanism(5.0))
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

    def test_losses_too_large_for_the_usual_cells(self, monkeypatch):
        monkeypatch.setattr(pld, "_MAX_CELLS", 100_000)
        hidden = GaussianMixtureProfile([1.0], [8.0])
        exact = GaussianProfile(8.0 * math.sqrt(2)).epsilon(1e-5)
        assert exact <= li.compose(hidden, hidden).epsilon(1e-5) <= exact * 1.01

    def test_cells_of_different_sizes(self):
        coarse, fine = (
            li.from_pld(from_gaussian_mechanism(1.0, value_discretization_interval=size))
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


def response_and_gaussian(limit, mu, epsilon):
    """Randomised response, the worst that is (limit, 0)-private, beside a Gaussian."""
    limit, mu, gamma = mpmath.mpf(limit), mpmath.mpf(mu), mpmath.exp(mpmath.mpf(epsilon))
    p = mpmath.exp(limit) / (1 + mpmath.exp(limit))

    def curve(gamma):
        log = mpmath.log(gamma)
        return mpmath.ncdf(mu / 2 - log / mu) - gamma * mpmath.ncdf(-log / mu - mu / 2)

    return float(p * curve(gamma * (1 - p) / p) + (1 - p) * curve(gamma * p / (1 - p)))


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
        with mpmath.workdps(60):
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
            exact = response_and_gaussian(1.0, mu, epsilon)
        found = compose_with_gaussian(PureProfile(1.0), mu).delta(epsilon)
        assert exact * (1 - 1e-9) <= found <= 1.0


def test_no_other_release_changes_nothing():
    profile = GaussianMixtureProfile([0.5, 0.5], [0.5, 1.0])
    assert compose_with_gaussian(profile, 0.0) is profile
    assert compose_with_gaussian(profile, math.inf).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_an_infinite_epsilon_leaves_what_is_lost(lost):
    found = compose_with_gaussian(GaussianMixtureProfile([1.0 - lost], [1.0], lost=lost), 0.5)
    assert lost <= found.delta(math.inf) <= lost + 1e-6


def by_convolution(curve, weights, mus, epsilon):
    """E curve(epsilon - l), l the loss of a Gaussian mechanism, and chance over its mu known."""
    z = np.linspace(-12.0, 12.0, 48_001)
    mass = norm.pdf(z) * (z[1] - z[0])
    total = 0.0
    for weight, mu in zip(weights, mus, strict=True):
        left = epsilon - (mu * mu / 2 + mu * z)
        known = curve(np.abs(left))
        both = np.where(left >= 0, known, 1 - np.exp(-np.abs(left)) * (1 - known))
        total += weight * float(mass @ both)
    return total


def of_gaussians(weights, mus):
    def curve(epsilons):
        return sum(
            w * (norm.sf(epsilons / m - m / 2) - np.exp(epsilons) * norm.sf(epsilons / m + m / 2))
            for w, m in zip(weights, mus, strict=True)
        )

    return curve


def of_pure(limit):
    p = 1 / (1 + math.exp(-limit))
    return lambda epsilons: np.maximum(p - np.exp(epsilons) * (1 - p), 0.0)


@pytest.mark.parametrize(
    "profile, curve",
    [
        (PureProfile(0.8), of_pure(0.8)),
        (compose_with_gaussian(PureProfile(0.3), 0.4), None),
    ],
)
@pytest.mark.parametrize("mus", [[0.0, 0.6], [0.3, 1.4], [0.05, 0.5, 2.0]])
def test_is_the_convolution(profile, curve, mus):
    weights = np.full(len(mus), 1.0 / len(mus))
    found = compose_with_mixture(profile, GaussianMixtureProfile(weights, mus))
    assert isinstance(found, MixtureCompositionProfile)
    told = mus
    if curve is None:
        curve, told = of_pure(0.3), np.hypot(mus, 0.4)
    for epsilon in EPSILONS:
        exact = by_convolution(curve, weights, told, epsilon)
        assert exact * (1 - 1e-6) - 1e-12 <= found.delta(epsilon) <= exact * 1.05 + 1e-9


def test_mixtures_join_in_squares():
    one, other = ([0.3, 0.7], [0.2, 0.9]), ([0.6, 0.4], [0.0, 0.5])
    found = compose_with_mixture(GaussianMixtureProfile(*one), GaussianMixtureProfile(*other))
    for epsilon in EPSILONS:
        exact = by_convolution(of_gaussians(*one), [0.4], [0.5], epsilon)
        exact += 0.6 * float(of_gaussians(*one)(np.array(epsilon)))
        assert exact * (1 - 1e-6) <= found.delta(epsilon) <= exact * (1 + 1e-6)


def test_of_what_promises_nothing_nothing_is_left():
    lost = GaussianMixtureProfile([1.0], [math.inf])
    assert compose_with_mixture(PureProfile(1.0), lost).epsilon(1e-5) == math.inf
    kept = compose_with_mixture(PureProfile(1.0), GaussianMixtureProfile([1.0], [0.3]))
    assert kept.gdp() >= 0.3
    assert kept.renyi(2.0) >= 0.09
    assert kept.renyi(math.inf) == math.inf
