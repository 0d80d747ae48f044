"""Sampled runs whose participations stay hidden, held to runs with every batch written out."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.subsampling.amplified_tail import MixtureTransportProfile
from tests.reference.all_orders import hockey_sticks, means
from tests.reference.enumeration import law_of_mu

EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)


def every_draw(examples, size, steps):
    """(draws, steps, size): every sequence of batches, all alike probable."""
    batches = np.array(list(combinations(range(examples), size)))
    return batches[np.array(list(product(range(len(batches)), repeat=steps)))]


class Attack:
    """A run on the line in which every example adds what it likes, within a distance of s."""

    def __init__(self, rng):
        self.rng = rng
        self.size = int(rng.integers(1, 3))
        self.examples = int(rng.integers(self.size + 1, 5))
        most = {2: 7, 3: 5, 4: 4, 6: 4}.get(math.comb(self.examples, self.size), 4)
        self.steps = int(rng.integers(1, most))
        self.limit = float(rng.choice([1.0, 0.9, 0.5]))
        self.ratio = float(rng.choice([0.3, 1.0, 2.0]))
        self.draws = every_draw(self.examples, self.size, self.steps)
        mus, weights = law_of_mu(
            steps=self.steps, probability=self.size / self.examples, contraction=self.limit
        )
        self.bound = MixtureTransportProfile(weights, self.ratio * mus)
        self.allowed = np.array([self.bound.delta(epsilon) for epsilon in EPSILONS])
        # The differing example, its other version, and all others.
        shape = (self.examples + 1, self.steps)
        self.added = rng.integers(0, 2, shape).astype(float)
        self.factors = self.limit * rng.choice([0.0, 0.5, 1.0], self.steps)

    def ratio_to_bound(self, added, factors):
        scale = self.ratio * self.size
        ours, spread = means(self.draws, factors, scale * added[1:])
        other = np.vstack([added[0], added[2:]])
        theirs, _ = means(self.draws, factors, scale * other)
        exact = hockey_sticks(ours, theirs, spread, EPSILONS)
        return float(np.max((np.array(exact) - 1e-9) / self.allowed))

    def climbed(self, rounds):
        best = self.ratio_to_bound(self.added, self.factors)
        for _ in range(rounds):
            added, factors = self.added.copy(), self.factors.copy()
            if self.rng.random() < 0.3:
                factors[self.rng.integers(self.steps)] = self.limit * self.rng.choice([0, 0.3, 1])
            else:
                where = tuple(self.rng.integers(added.shape))
                added[where] = self.rng.choice([0.0, 0.5, 1.0])
            found = self.ratio_to_bound(added, factors)
            if found >= best:
                best, self.added, self.factors = found, added, factors
        return best


class TestOracle:
    """The theorem with exact mus is above every run; the search would see if it were not."""

    @pytest.mark.parametrize(
        "seed", [*range(6), *(pytest.param(k, marks=pytest.mark.slow) for k in range(6, 200))]
    )
    def test_no_run_leaks_more(self, seed):
        assert Attack(np.random.default_rng(seed)).climbed(25) <= 1 + 1e-6

    def test_the_search_has_teeth(self):
        """A bound for nine tenths of the sensitivity is found out."""
        largest = 0.0
        for seed in range(12):
            attack = Attack(np.random.default_rng(seed))
            mus, weights = law_of_mu(
                steps=attack.steps,
                probability=attack.size / attack.examples,
                contraction=attack.limit,
            )
            short = MixtureTransportProfile(weights, 0.9 * attack.ratio * mus)
            attack.allowed = np.array([short.delta(epsilon) for epsilon in EPSILONS])
            largest = max(largest, attack.climbed(25))
        assert largest > 1.01


class TestProfile:
    LAW = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.5, 1.5])

    def exact(self, epsilon):
        """N(mu, 1), mu random, against N(0, 1): thresholds are best, and one of them is."""
        weights, mus = self.LAW
        z = np.linspace(-10, 20, 300_001)
        return float(np.max(weights @ ndtr(mus[:, None] - z) - math.exp(epsilon) * ndtr(-z)))

    def test_is_that_of_a_random_mean(self):
        profile = MixtureTransportProfile(*self.LAW)
        for delta in (0.1, 1e-2, 1e-4, 1e-6):
            epsilon = profile.epsilon(delta)
            # The two differ above the multiplier, where the bound is a little larger.
            assert self.exact(epsilon) <= delta <= 1.05 * self.exact(epsilon)

    def test_chords_lie_above_and_near(self):
        profile = MixtureTransportProfile(*self.LAW)
        for epsilon in (0.0, 0.3, 1.0, 3.0, 6.0):
            assert self.exact(epsilon) <= profile.delta(epsilon) * (1 + 1e-9)
            assert profile.delta(epsilon) <= 1.3 * self.exact(epsilon)

    def test_what_is_lost_is_charged_and_lent_to(self):
        whole = MixtureTransportProfile(*self.LAW)
        less = MixtureTransportProfile(*self.LAW, lost=1e-6)
        assert less.epsilon(1e-6) == math.inf
        assert less.epsilon(1e-4) > whole.epsilon(1e-4 - 1e-6)
        infinite = MixtureTransportProfile([0.5, 0.5 - 1e-6, 1e-6], [0.5, 0.5, math.inf])
        assert infinite.epsilon(1e-6) == math.inf > infinite.epsilon(1e-5)

    @pytest.mark.parametrize("delta", [math.nan, -1e-6, 1.5, "small"])
    def test_no_delta_is_refused_by_name(self, delta):
        with pytest.raises(li.LastIterateError, match="delta"):
            MixtureTransportProfile(*self.LAW).epsilon(delta)

    def test_nothing_leaks_without_mus(self):
        assert MixtureTransportProfile([1.0], [0.0]).epsilon(1e-6) < 1e-9
