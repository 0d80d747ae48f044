"""A hidden mu, of which the law or moments are known: above every law, and above runs."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.subsampling.amplified_tail import (
    LagrangianTable,
    MixtureTransportProfile,
    MomentTransportProfile,
)
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.pld import losses_of, self_composed, to_pld
from tests.reference.all_orders import hockey_sticks, means
from tests.reference.enumeration import law_of_mu
from tests.slow import slow_if

EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)
LAW = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.5, 1.5])
RATES = 2.0 ** np.arange(-1.0, 3.1, 0.5)


class Attack:
    """A run on the line in which every example adds what it likes, within a distance of s."""

    def __init__(self, rng):
        self.rng, self.size = rng, int(rng.integers(1, 3))
        self.examples = int(rng.integers(self.size + 1, 5))
        most = {2: 7, 3: 5, 4: 4, 6: 4}.get(math.comb(self.examples, self.size), 4)
        self.steps = int(rng.integers(1, most))
        self.limit = float(rng.choice([1.0, 0.9, 0.5]))
        self.ratio = float(rng.choice([0.3, 1.0, 2.0]))
        # The differing example, its other version, and all others.
        self.added = rng.integers(0, 2, (self.examples + 1, self.steps)).astype(float)
        self.factors = self.limit * rng.choice([0.0, 0.5, 1.0], self.steps)

    def allowed(self, stated=1.0):
        """By the theorem with exact mus, for so much of the sensitivity."""
        share = self.size / self.examples
        mus, weights = law_of_mu(steps=self.steps, probability=share, contraction=self.limit)
        bound = MixtureTransportProfile(weights, stated * self.ratio * mus)
        return np.array([bound.delta(epsilon) for epsilon in EPSILONS])

    def ratio_to(self, allowed, added, factors):
        batches = np.array(list(combinations(range(self.examples), self.size)))
        draws = batches[np.array(list(product(range(len(batches)), repeat=self.steps)))]
        scale = self.ratio * self.size
        ours, spread = means(draws, factors, scale * added[1:])
        theirs, _ = means(draws, factors, scale * np.vstack([added[0], added[2:]]))
        exact = hockey_sticks(ours, theirs, spread, EPSILONS)
        return float(np.max((np.array(exact) - 1e-9) / allowed))

    def climbed(self, rounds, stated=1.0):
        allowed = self.allowed(stated)
        best = self.ratio_to(allowed, self.added, self.factors)
        for _ in range(rounds):
            added, factors = self.added.copy(), self.factors.copy()
            if self.rng.random() < 0.3:
                factors[self.rng.integers(self.steps)] = self.limit * self.rng.choice([0, 0.3, 1])
            else:
                where = tuple(self.rng.integers(added.shape))
                added[where] = self.rng.choice([0.0, 0.5, 1.0])
            found = self.ratio_to(allowed, added, factors)
            if found >= best:
                best, self.added, self.factors = found, added, factors
        return best


class TestRuns:
    """No run leaks more; the search would see if one did."""

    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 5, range(100)))
    def test_no_run_leaks_more(self, seed):
        assert Attack(np.random.default_rng(seed)).climbed(25) <= 1 + 1e-6

    def test_the_search_has_teeth(self):
        """A bound for nine tenths of the sensitivity is found out."""
        attacks = (Attack(np.random.default_rng(seed)) for seed in range(12))
        assert any(attack.climbed(25, stated=0.9) > 1.01 for attack in attacks)


def exact(weights, mus, epsilon):
    """N(mu, 1), mu random, against N(0, 1): thresholds are best, and one of them is."""
    z = np.linspace(-6, 20, 5_001)
    return float(np.max(weights @ ndtr(mus[:, None] - z) - math.exp(epsilon) * ndtr(-z)))


class TestKnownLaw:
    def test_is_that_of_a_random_mean(self):
        profile = MixtureTransportProfile(*LAW)
        for delta in (0.1, 1e-2, 1e-4, 1e-6):
            truth = exact(*LAW, profile.epsilon(delta))
            # The two differ above the multiplier, where the bound is a little larger.
            assert truth <= delta <= 1.05 * truth

    def test_chords_lie_above_and_near(self):
        profile = MixtureTransportProfile(*LAW)
        for epsilon in (0.0, 0.3, 1.0, 3.0, 6.0):
            truth = exact(*LAW, epsilon)
            assert truth <= profile.delta(epsilon) * (1 + 1e-9)
            assert profile.delta(epsilon) <= 1.3 * truth

    def test_what_is_lost_is_charged_and_lent_to(self):
        whole, less = MixtureTransportProfile(*LAW), MixtureTransportProfile(*LAW, lost=1e-6)
        assert less.epsilon(1e-6) == math.inf
        assert less.epsilon(1e-4) > whole.epsilon(1e-4 - 1e-6)
        infinite = MixtureTransportProfile([0.5, 0.5 - 1e-6, 1e-6], [0.5, 0.5, math.inf])
        assert infinite.epsilon(1e-6) == math.inf > infinite.epsilon(1e-5)

    def test_every_deficit_of_the_weights_is_charged(self):
        """Also what they lack beyond `lost`, as rounding may leave them."""
        profile = MixtureTransportProfile([1.0 - 1.9e-9], [0.0], lost=1e-9)
        assert profile.delta(5.0) >= 1.9e-9 * (1 - 1e-6)
        assert profile.epsilon(1.5e-9) == math.inf

    @pytest.mark.parametrize("delta", [math.nan, -1e-6, 1.5, "small"])
    def test_no_delta_is_refused_by_name(self, delta):
        with pytest.raises(li.LastIterateError, match="delta"):
            MixtureTransportProfile(*LAW).epsilon(delta)

    def test_nothing_leaks_without_mus(self):
        assert MixtureTransportProfile([1.0], [0.0]).epsilon(1e-6) < 1e-9


def rare_law(rng):
    """Mostly next to nothing, and seldom much."""
    size = int(rng.integers(1, 6))
    chances = 10.0 ** rng.uniform(-7, -1, size)
    weights = np.append(chances, max(1.0 - chances.sum(), 0.0))
    mus = np.append(10.0 ** rng.uniform(-1.5, 0.6, size), 10.0 ** rng.uniform(-3, -1))
    return weights / weights.sum(), mus


def random_law(rng):
    size = int(rng.integers(1, 12))
    return rng.dirichlet(np.full(size, 0.7)), rng.gamma(4.0, rng.choice([0.03, 0.2, 0.6]), size)


def profile_of(weights, mus, **others):
    logs = np.log([weights @ np.exp(rate * mus**2) for rate in RATES])
    return MomentTransportProfile(RATES, logs, **others)


class TestKnownMoments:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 3, range(12)))
    @pytest.mark.parametrize("law", [rare_law, random_law])
    def test_above_every_law(self, law, seed):
        weights, mus = law(np.random.default_rng(seed))
        profile = profile_of(weights, mus)
        for delta in (1e-2, 1e-5, 1e-9):
            epsilon = profile.epsilon(delta)
            assert epsilon > 50.0 or exact(weights, mus, epsilon) <= delta * (1.0 + 1e-9)
        for epsilon in (0.0, 2.0):
            assert exact(weights, mus, epsilon) <= profile.delta(epsilon)

    def test_a_rare_large_mu_is_within_reach(self):
        """Though a thousand times the typical one."""
        profile = profile_of(np.array([1.0 - 1e-4, 1e-4]), np.array([1e-3, 1.0]))
        assert profile.epsilon(1e-6) < 0.2

    @pytest.mark.parametrize("epsilon", [0.0, 1.0, 8.0])
    def test_a_single_delta_is_no_chord(self, epsilon):
        profile = profile_of(np.ones(1), np.ones(1))
        gaussian = li.GaussianProfile(1.0).delta(epsilon)
        assert gaussian <= profile.delta(epsilon) <= 1.1 * gaussian
        assert profile.delta(epsilon) <= profile.deltas(np.array([epsilon, 9.0]))[0] * (1.0 + 1e-9)


def exact_before(weights, mus, tail, epsilon):
    """The same, composed with a tail: its loss is subtracted from epsilon."""
    z = np.linspace(-6, 20, 2_001)
    hit, fooled = weights @ ndtr(mus[:, None] - z), ndtr(-z)
    (losses,) = losses_of(tail.pld)
    left = epsilon - losses.cell * (losses.first + np.arange(losses.masses.size))
    some = losses.masses > 1e-15
    best = [float(np.max(hit - math.exp(one) * fooled)) for one in left[some]]
    return float(losses.masses[some] @ np.maximum(best, 0.0))


class TestMoments:
    @pytest.mark.parametrize("seed", slow_if(bool, range(3)))
    def test_above_every_law_composed_with_a_tail(self, seed):
        rng = np.random.default_rng(seed)
        weights, mus = random_law(rng)
        step = SubsampledGaussian(0.02, float(rng.uniform(0.3, 1.2)))
        tail = self_composed(to_pld(step, discretization=2e-3), 30)
        ours = profile_of(weights, mus, composed_with=tail)
        for delta in (1e-3, 1e-6):
            assert exact_before(weights, mus, tail, ours.epsilon(delta)) <= delta * (1.0 + 1e-6)

    @pytest.mark.parametrize("mu", [0.05, 3.0])
    def test_a_certain_mu_is_nearly_gaussian(self, mu):
        found = MomentTransportProfile(RATES / mu**2, RATES).epsilon(1e-6)
        assert found == pytest.approx(li.GaussianProfile(mu).epsilon(1e-6), rel=0.01)
        assert found >= li.GaussianProfile(mu).epsilon(1e-6)

    def test_what_is_lost_and_larger_mus_are_charged(self):
        least = MomentTransportProfile(RATES, RATES).epsilon(1e-5)
        lost = MomentTransportProfile(RATES, RATES, lost=1e-6)
        assert lost.epsilon(1e-6) == math.inf
        assert lost.epsilon(1e-5 + 1e-6) > least
        assert MomentTransportProfile(RATES, RATES, extra_mu=0.1).epsilon(1e-5) > least + 0.1
        assert MomentTransportProfile(RATES, 1.1 * RATES).epsilon(1e-5) > least + 0.1

    @pytest.mark.parametrize("multiplier", [0.5, 1.4, 2.5])
    def test_may_be_of_all_but_what_is_lost(self, multiplier):
        """Nothing is known of it: at worst it reveals the data set."""
        mu, lost = 0.3, 0.01
        profile = MomentTransportProfile(RATES, RATES * mu**2 + math.log1p(-lost), lost=lost)
        epsilon, delta = profile._point_at(multiplier)
        assert delta >= (1.0 - lost) * li.GaussianProfile(mu).delta(epsilon) + lost * (1.0 - 1e-9)

    def test_nothing_is_promised_without_them(self):
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
