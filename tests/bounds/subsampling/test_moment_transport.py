"""A hidden mu of which moments are known: above every law that has them."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.subsampling.amplified_tail import LagrangianTable, MomentTransportProfile
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.pld import losses_of, self_composed, to_pld

RATES = 2.0 ** np.arange(-1.0, 3.1, 0.5)


def random_law(rng):
    size = int(rng.integers(1, 12))
    return rng.dirichlet(np.full(size, 0.7)), rng.gamma(4.0, rng.choice([0.03, 0.2, 0.6]), size)


def profile_of(weights, mus, **others):
    logs = np.log([weights @ np.exp(rate * mus**2) for rate in RATES])
    return MomentTransportProfile(RATES, logs, **others)


def exact(weights, mus, epsilon):
    """N(mu, 1), mu random, against N(0, 1): thresholds are best."""
    z = np.linspace(-6, 20, 5_001)
    return float(np.max(weights @ ndtr(mus[:, None] - z) - math.exp(epsilon) * ndtr(-z)))


def rare_law(rng):
    """Mostly next to nothing, and seldom much."""
    size = int(rng.integers(1, 6))
    chances = 10.0 ** rng.uniform(-7, -1, size)
    weights = np.append(chances, max(1.0 - chances.sum(), 0.0))
    mus = np.append(10.0 ** rng.uniform(-1.5, 0.6, size), 10.0 ** rng.uniform(-3, -1))
    return weights / weights.sum(), mus


@pytest.mark.parametrize("seed", range(12))
def test_above_every_rare_law(seed):
    weights, mus = rare_law(np.random.default_rng(seed))
    profile = profile_of(weights, mus)
    for delta in (1e-3, 1e-6, 1e-9):
        epsilon = profile.epsilon(delta)
        assert epsilon == math.inf or exact(weights, mus, epsilon) <= delta * (1.0 + 1e-9)


def test_a_rare_large_mu_is_within_reach():
    """Though a thousand times the typical one."""
    profile = profile_of(np.array([1.0 - 1e-4, 1e-4]), np.array([1e-3, 1.0]))
    assert profile.epsilon(1e-6) < 0.2


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0, 8.0])
def test_a_single_delta_is_no_chord(epsilon):
    profile = profile_of(np.ones(1), np.ones(1))
    gaussian = li.GaussianProfile(1.0).delta(epsilon)
    assert gaussian <= profile.delta(epsilon) <= 1.1 * gaussian
    assert profile.delta(epsilon) <= profile.deltas(np.array([epsilon, 9.0]))[0] * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_above_every_law(seed):
    weights, mus = random_law(np.random.default_rng(seed))
    profile = profile_of(weights, mus)
    for delta in (1e-2, 1e-5, 1e-9, 1e-12):
        epsilon = profile.epsilon(delta)
        if epsilon < 50.0:
            assert exact(weights, mus, epsilon) <= delta
    for epsilon in (0.0, 0.5, 2.0):
        assert exact(weights, mus, epsilon) <= profile.delta(epsilon)


def exact_before(weights, mus, tail, epsilon):
    """The same, composed with a tail: its loss is subtracted from epsilon."""
    z = np.linspace(-6, 20, 2_001)
    hit, fooled = weights @ ndtr(mus[:, None] - z), ndtr(-z)
    (losses,) = losses_of(tail.pld)
    left = epsilon - losses.cell * (losses.first + np.arange(losses.masses.size))
    some = losses.masses > 1e-15
    best = [float(np.max(hit - math.exp(one) * fooled)) for one in left[some]]
    return float(losses.masses[some] @ np.maximum(best, 0.0))


@pytest.mark.parametrize("seed", range(3))
def test_above_every_law_composed_with_a_tail(seed):
    rng = np.random.default_rng(seed)
    weights, mus = random_law(rng)
    step = SubsampledGaussian(0.02, float(rng.uniform(0.3, 1.2)))
    tail = self_composed(to_pld(step, discretization=1e-3), 30)
    ours = profile_of(weights, mus, composed_with=tail)
    for delta in (1e-3, 1e-6):
        assert exact_before(weights, mus, tail, ours.epsilon(delta)) <= delta * (1.0 + 1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.7, 3.0])
def test_a_certain_mu_is_nearly_gaussian(mu):
    rates = RATES / mu**2
    profile = MomentTransportProfile(rates, rates * mu**2)
    assert profile.epsilon(1e-6) == pytest.approx(li.GaussianProfile(mu).epsilon(1e-6), rel=0.01)
    assert profile.epsilon(1e-6) >= li.GaussianProfile(mu).epsilon(1e-6)


def test_what_is_lost_is_charged():
    profile = MomentTransportProfile(RATES, RATES, lost=1e-6)
    assert profile.epsilon(1e-6) == math.inf
    assert profile.epsilon(1e-5) > MomentTransportProfile(RATES, RATES).epsilon(1e-5 - 1e-6)


@pytest.mark.parametrize("multiplier", [0.5, 1.4, 2.5])
def test_moments_may_be_of_all_but_what_is_lost(multiplier):
    """Nothing is known of it: at worst it reveals the data set."""
    mu, lost = 0.3, 0.01
    profile = MomentTransportProfile(RATES, RATES * mu**2 + math.log1p(-lost), lost=lost)
    epsilon, delta = profile._at(multiplier)
    assert delta >= (1.0 - lost) * li.GaussianProfile(mu).delta(epsilon) + lost * (1.0 - 1e-9)


def test_larger_mus_cost_more():
    least = MomentTransportProfile(RATES, RATES).epsilon(1e-5)
    assert MomentTransportProfile(RATES, RATES, extra_mu=0.1).epsilon(1e-5) > least + 0.1
    assert MomentTransportProfile(RATES, 1.1 * RATES).epsilon(1e-5) > least + 0.1


def test_nothing_is_promised_without_moments():
    profile = MomentTransportProfile(RATES, np.full(RATES.size, np.inf))
    assert profile.epsilon(0.5) == math.inf
    assert profile.delta(1.0) == 1.0


@pytest.mark.parametrize("multiplier", [1e-2, 1e-6])
def test_costs_between_the_rows_of_the_table_are_above_the_curves(multiplier):
    step = to_pld(SubsampledGaussian(0.1, 1.0), discretization=1e-3)
    tail = self_composed(step, 5)
    mus = np.linspace(0.2, 1.9, 60)
    logs, costs = LagrangianTable(1.0, tail).at_multiplier(multiplier, mus)
    assert np.all(np.diff(logs) >= 0.0)
    losses = tail.pld._pmf_remove.to_dense_pmf()
    at = losses._discretization * (losses._lower_loss + np.arange(losses._probs.size))
    for mu, log, cost in zip(mus, logs, costs, strict=True):
        after = log - at
        a = after / mu - mu / 2
        curve = ndtr(-a) - np.exp(after) * ndtr(-a - mu)
        assert losses._probs @ curve <= cost * (1 + 1e-6) + 1e-15
