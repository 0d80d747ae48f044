"""Participations that are counted beforehand, held to every set of participations."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling import energy_moments as block_shifts
from lastiterate.bounds.subsampling import energy_moments as counted_moments
from lastiterate.bounds.subsampling.energy_moments import Block, recursive_moments
from tests.reference.enumeration import energy_of_ages, law_of_mu

MANY = [*range(40), *(pytest.param(k, marks=pytest.mark.slow) for k in range(40, 1_200))]


class Instance:
    """A run of a few steps, in blocks of several, and its moments by enumeration."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.steps = int(rng.integers(2, 8))
        self.probability = float(rng.choice([0.02, 0.1, 0.3, 0.5]))
        self.contraction = float(rng.choice([1.0, 0.95, 0.8, 0.5]))
        self.worth = float(rng.choice([0.0, 0.5, 3.0, 20.0]))
        self.rates = np.sort(rng.choice([0.05, 0.2, 0.5, 1.0, 2.0], 3)) * (1.0 + self.worth)

    @property
    def exact(self):
        mus, chances = law_of_mu(
            steps=self.steps,
            probability=self.probability,
            contraction=self.contraction,
            worth=self.worth,
        )
        return np.log(np.exp(self.rates[:, None] * mus**2) @ chances)

    @property
    def found(self):
        return recursive_moments(
            math.log(self.contraction), self.steps, self.probability, self.worth, self.rates
        ).logs


@pytest.fixture
def coarse(monkeypatch):
    """Blocks of several steps, with more participations than are distinguished."""
    monkeypatch.setattr(block_shifts, "_GROWTH", 0.5)
    monkeypatch.setattr(block_shifts, "_BLOCK", 2.0)
    monkeypatch.setattr(counted_moments, "_MOST_IN_BLOCK", 1)
    monkeypatch.setattr(counted_moments, "_MEMORIES", 20.0)


@pytest.mark.usefixtures("coarse")
class TestCounted:
    @pytest.mark.parametrize("seed", MANY)
    def test_above_every_enumeration(self, seed):
        instance = Instance(seed)
        assert np.all(instance.found >= instance.exact - 1e-12)

    def worst(self):
        """The largest excess of the truth over what is found."""
        return max(np.max(one.exact - one.found) for one in map(Instance, range(40)))

    def test_participations_that_shrink_too_soon_are_noticed(self, monkeypatch):
        def shrunk(log_c, steps, release):
            for block in honest(log_c, steps, release):
                least = block.least_kept**2
                yield block._replace(kept=0.9 * block.kept, least_kept=0.9 * least)

        honest = block_shifts.blocks
        monkeypatch.setattr("lastiterate.bounds.subsampling.energy_moments.blocks", shrunk)
        assert self.worst() > 1e-3

    def test_too_few_of_the_last_are_noticed(self, monkeypatch):
        honest = counted_moments._log_binomial
        monkeypatch.setattr(
            counted_moments, "_log_binomial", lambda steps, p, most: honest(steps, 0.9 * p, most)
        )
        assert self.worst() > 1e-3

    def test_more_noise_than_there_is_is_noticed(self, monkeypatch):
        def louder(log_c, steps, release):
            for block in honest(log_c, steps, release):
                yield block._replace(noise=1.3 * block.noise)

        honest = block_shifts.blocks
        monkeypatch.setattr("lastiterate.bounds.subsampling.energy_moments.blocks", louder)
        assert self.worst() > 1e-3


class TestAveraged:
    """Against the sum of exponentials itself, of numbers of any size."""

    @staticmethod
    def problem(seed, size):
        rng = np.random.default_rng(seed)
        unit, counts, width = int(rng.integers(1, 5)), int(rng.integers(1, 7)), 12
        in_block = int(rng.integers(0, counts))
        least = int(rng.integers(0, unit + 1))
        share = float(rng.choice([0.0, 0.3, 1.0]))
        steps = rng.random((2, counts, width + in_block * unit)) * size
        reached = np.cumsum(np.cumsum(steps, axis=1), axis=2)  # increasing in both
        chances = rng.dirichlet(np.ones(in_block + 1), size=counts).T
        chances = np.where(np.arange(in_block + 1)[:, None] <= np.arange(counts), chances, 0.0)
        ends = (counted_moments._End(unit, 1.0 - share), counted_moments._End(least, share))
        with np.errstate(divide="ignore"):
            return reached, np.log(chances), ends, width

    @staticmethod
    def literally(reached, log_chances, ends, width):
        found = np.full((*reached.shape[:2], width), -np.inf)
        for n, of_n in enumerate(np.exp(log_chances)):
            for end in ends if n else (counted_moments._End(0, 1.0),):
                for j in range(n, reached.shape[1]):
                    weight = of_n[j] * end.probability
                    there = reached[:, j - n, n * end.cells : n * end.cells + width]
                    log = math.log(weight) if weight > 0.0 else -math.inf
                    found[:, j] = np.logaddexp(found[:, j], there + log)
        return found

    @pytest.mark.parametrize("size", [1e-6, 0.1, 1.0, 30.0, 1e3])
    @pytest.mark.parametrize("seed", range(30))
    def test_is_the_logarithm_of_the_mean(self, seed, size):
        problem = self.problem(seed, size)
        exact = self.literally(*problem)
        assert np.all(
            np.abs(counted_moments._averaged(*problem) - exact) <= 1e-12 * (1.0 + np.abs(exact))
        )


class TestChances:
    @pytest.mark.parametrize("age, steps", [(0, 3), (4, 2), (10, 5)])
    def test_are_those_of_an_urn(self, age, steps):
        block = Block(age, steps, 1.0, 1.0, 1.0, 1.0)
        found = np.exp(counted_moments._log_chances(block, 4, 4))
        for j in range(min(age + steps, 4) + 1):
            for n in range(j + 1):
                ways = math.comb(steps, n) * math.comb(age, j - n)
                expected = ways / math.comb(age + steps, j)
                assert found[n, j] == pytest.approx(expected, rel=1e-6)

    def test_more_in_a_block_are_taken_together(self):
        block = Block(10, 5, 1.0, 1.0, 1.0, 1.0)
        few = np.exp(counted_moments._log_chances(block, 4, 2))
        assert few.shape == (3, 5)
        assert np.allclose(few.sum(axis=0), 1.0)

    @pytest.mark.parametrize("steps, probability", [(5, 0.3), (400, 0.01), (10**6, 4e-6)])
    def test_next_to_none_come_more_often(self, steps, probability):
        most = counted_moments._most(steps, probability)
        logs = counted_moments._log_binomial(steps, probability, most)
        assert math.fsum(np.exp(logs)) == pytest.approx(1.0, abs=1e-8)
        assert math.exp(counted_moments._log_beyond(steps, probability, most)) <= math.exp(-40.0)


def test_counting_helps():
    """A memory of a hundred steps, with a participation in forty: known to a few per cent."""
    rng = np.random.default_rng(0)
    rates = np.array([0.5, 1.0])
    problem = math.log1p(-0.01), 1_500, 0.025, 7.5
    found = recursive_moments(*problem, rates).logs
    drawn = (np.flatnonzero(rng.random(1_200) < 0.025)[::-1] for _ in range(1_500))
    energies = np.array([energy_of_ages(ages, contraction=0.99, worth=7.5) for ages in drawn])
    simulated = np.log(np.exp(rates[:, None] * energies).mean(axis=1))
    assert np.all(found <= 1.1 * simulated)
