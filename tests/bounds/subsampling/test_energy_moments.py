"""Exponential moments of energies: never below those of every set of participations."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling import energy_moments as module
from lastiterate.bounds.subsampling.energy_moments import (
    Block,
    binomial_window,
    energy_moments,
    face_moments,
    recursive_moments,
)
from tests.reference.enumeration import energy_of_ages, law_of_mu
from tests.slow import slow_if

RATES = np.array([0.05, 0.3, 1.0, 2.5])


def exact(**problem):
    mus, chances = law_of_mu(**problem)
    return np.log([chances @ np.exp(rate * mus**2) for rate in RATES])


class TestRecursive:
    @pytest.mark.parametrize("contraction", [1.0, 0.97, 0.6])
    @pytest.mark.parametrize("worth", [0.0, 0.7, 6.0])
    @pytest.mark.parametrize("probability", [0.1, 0.5])
    def test_above_every_enumeration(self, contraction, worth, probability):
        found = recursive_moments(math.log(contraction), 9, probability, worth, RATES)
        least = exact(steps=9, probability=probability, contraction=contraction, worth=worth)
        assert np.all(found.logs >= least)
        # Shifts that know the past only, and blocks, cost more, but not without limit.
        assert np.all(found.logs[:2] <= 2.0 * least[:2])

    @pytest.mark.parametrize("diameter", [0.3, 1.5])
    @pytest.mark.parametrize("worth", [0.0, 4.0])
    def test_on_a_bounded_domain(self, diameter, worth):
        problem = {"steps": 6, "probability": 0.4, "worth": worth}
        found = recursive_moments(0.0, 6, 0.4, worth, RATES, cap=diameter)
        assert np.all(found.logs >= exact(**problem, diameter=diameter))
        endless = recursive_moments(0.0, 10**6, 0.4, worth, RATES, cap=diameter)
        assert np.all(endless.logs < recursive_moments(0.0, 10**4, 0.4, worth, RATES).logs)

    def test_long_blocks_are_above_simulated_runs(self):
        """With hundreds of steps in a block, and cells wider than a participation."""
        gap, steps, probability, released = 1e-3, 6_000, 0.4, 50.0
        rng = np.random.default_rng(0)
        unit = (1 - gap) ** np.arange(steps - 1, -1, -1)
        # No shifts cost less than one of the whole sum with all the noise.
        sums = (rng.random((400, steps)) < probability) @ unit
        energies = sums**2 / (np.sum(unit**2) + released)
        found = recursive_moments(math.log1p(-gap), steps, probability, released, RATES)
        sampled = np.mean(energies)
        assert sampled * RATES[0] <= found.logs[0] <= 1.2 * sampled * RATES[0]

    def test_older_participations_count(self):
        shorter, longer = (
            recursive_moments(math.log(0.5), steps, 0.3, 1.0, RATES) for steps in (65, 10**9)
        )
        assert longer.extra_mu >= 0.0
        assert np.allclose(longer.logs, shorter.logs, rtol=1e-6)


class TestFaces:
    @pytest.mark.parametrize("steps, worth", [(8, 3.0), (12, 40.0), (10, 0.5)])
    @pytest.mark.parametrize("probability", [0.05, 0.2])
    def test_above_every_enumeration(self, steps, worth, probability):
        found = face_moments(steps, probability, worth, RATES)
        assert np.all(found.logs >= exact(steps=steps, probability=probability, worth=worth))
        assert found.lost < 1e-12

    def test_long_steps_cost_more_but_little(self, monkeypatch):
        fine = face_moments(600, 0.05, 60.0, RATES)
        monkeypatch.setattr(module, "_LONG_STEPS_IN_RELEASE", 1e9)
        single = face_moments(600, 0.05, 60.0, RATES)
        assert np.all(single.logs <= fine.logs)
        assert np.all(fine.logs <= 1.03 * single.logs)

    def test_nothing_is_said_without_a_release(self):
        assert np.all(np.isinf(face_moments(50, 0.1, 0.0, RATES).logs))


@pytest.mark.parametrize("others", [(64.0, 1024.0), (1e-3,)])
def test_no_rate_depends_on_the_others(others):
    """Neither at once nor before, though at some all that is known is that they are huge."""
    problem = {"gap": 1e-4, "steps": 300, "probability": 0.1, "release": 9.0}
    alone = energy_moments(**problem, rates=(0.5, 4.0)).logs
    module._moment_cache.cache_clear()
    energy_moments(**problem, rates=(*others, 4.0))
    after = energy_moments(**problem, rates=(0.5, 4.0)).logs
    assert after == pytest.approx(alone, rel=1e-12)


def test_the_least_of_both():
    problem = {"gap": 0.0, "steps": 400, "probability": 0.05, "release": 20.0}
    best = energy_moments(**problem, rates=tuple(RATES))
    recursive = recursive_moments(0.0, 400, 0.05, 20.0, RATES)
    faces = face_moments(400, 0.05, 20.0, RATES)
    assert np.array_equal(best.logs, np.minimum(recursive.logs, faces.logs))
    assert best.lost >= max(recursive.lost, faces.lost)


class TestBinomialWindow:
    @pytest.mark.parametrize(
        "steps, probability", [(1, 0.3), (40, 0.5), (5_000, 1e-3), (10**9, 0.2)]
    )
    def test_all_but_what_is_lost(self, steps, probability):
        found = binomial_window(steps, probability)
        assert math.fsum(np.exp(found.logs)) >= 1.0 - found.lost
        assert found.lost < 1e-15
        mean = np.exp(found.logs) @ found.values
        assert mean == pytest.approx(steps * probability, rel=1e-6)

    def test_all_of_a_certainty(self):
        assert binomial_window(7, 1.0).values.tolist() == [7.0]


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
    monkeypatch.setattr(module, "_BLOCK_GROWTH", 0.5)
    monkeypatch.setattr(module, "_BLOCK_MEMORIES", 2.0)
    monkeypatch.setattr(module, "_MOST_IN_BLOCK", 1)
    monkeypatch.setattr(module, "_COUNTED_MEMORIES", 20.0)


def changed(monkeypatch, change):
    """Blocks that are not what they are."""
    honest = module.blocks

    def dishonest(*given):
        for block in honest(*given):
            yield change(block)

    monkeypatch.setattr(module, "blocks", dishonest)


@pytest.mark.usefixtures("coarse")
class TestCounted:
    """Participations that are counted beforehand, held to every set of participations."""

    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed >= 40, range(600)))
    def test_above_every_enumeration(self, seed):
        instance = Instance(seed)
        assert np.all(instance.found >= instance.exact - 1e-12)

    def worst(self):
        """The largest excess of the truth over what is found."""
        return max(np.max(one.exact - one.found) for one in map(Instance, range(40)))

    def test_participations_that_shrink_too_soon_are_noticed(self, monkeypatch):
        changed(
            monkeypatch,
            lambda one: one._replace(kept=0.9 * one.kept, least_kept=0.9 * one.least_kept**2),
        )
        assert self.worst() > 1e-3

    def test_more_noise_than_there_is_is_noticed(self, monkeypatch):
        changed(monkeypatch, lambda one: one._replace(noise=1.3 * one.noise))
        assert self.worst() > 1e-3

    def test_too_few_of_the_last_are_noticed(self, monkeypatch):
        honest = module._log_binomial
        monkeypatch.setattr(
            module, "_log_binomial", lambda steps, p, most: honest(steps, 0.9 * p, most)
        )
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
        ends = (module._End(unit, 1.0 - share), module._End(least, share))
        with np.errstate(divide="ignore"):
            return reached, np.log(chances), ends, width

    @staticmethod
    def literally(reached, log_chances, ends, width):
        found = np.full((*reached.shape[:2], width), -np.inf)
        for n, of_n in enumerate(np.exp(log_chances)):
            for end in ends if n else (module._End(0, 1.0),):
                for j in range(n, reached.shape[1]):
                    weight = of_n[j] * end.probability
                    there = reached[:, j - n, n * end.cells : n * end.cells + width]
                    log = math.log(weight) if weight > 0.0 else -math.inf
                    found[:, j] = np.logaddexp(found[:, j], there + log)
        return found

    @pytest.mark.parametrize("size", [1e-6, 0.1, 1.0, 30.0, 1e3])
    @pytest.mark.parametrize("seed", range(12))
    def test_is_the_logarithm_of_the_mean(self, seed, size):
        problem = self.problem(seed, size)
        exact = self.literally(*problem)
        assert np.all(
            np.abs(module._log_mean_exp_by_count(*problem) - exact) <= 1e-12 * (1.0 + np.abs(exact))
        )


class TestChances:
    @pytest.mark.parametrize("age, steps", [(0, 3), (4, 2), (10, 5)])
    def test_are_those_of_an_urn(self, age, steps):
        block = Block(age, steps, 1.0, 1.0, 1.0, 1.0)
        found = np.exp(module._log_chances(block, 4, 4))
        for j in range(min(age + steps, 4) + 1):
            for n in range(j + 1):
                ways = math.comb(steps, n) * math.comb(age, j - n)
                expected = ways / math.comb(age + steps, j)
                assert found[n, j] == pytest.approx(expected, rel=1e-6)

    def test_more_in_a_block_are_taken_together(self):
        block = Block(10, 5, 1.0, 1.0, 1.0, 1.0)
        few = np.exp(module._log_chances(block, 4, 2))
        assert few.shape == (3, 5)
        assert np.allclose(few.sum(axis=0), 1.0)

    @pytest.mark.parametrize("steps, probability", [(5, 0.3), (400, 0.01), (10**6, 4e-6)])
    def test_next_to_none_come_more_often(self, steps, probability):
        most = module._most_participations(steps, probability)
        logs = module._log_binomial(steps, probability, most)
        assert math.fsum(np.exp(logs)) == pytest.approx(1.0, abs=1e-8)
        assert math.exp(module._log_beyond(steps, probability, most)) <= math.exp(-40.0)


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
