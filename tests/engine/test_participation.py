"""The law of random participations: exact where it can be enumerated, never below."""

import math

import numpy as np
import pytest

from lastiterate.engine.leftover import leftover_law
from lastiterate.engine.minorant import minorant_of_arrivals
from lastiterate.engine.participation import participation_law
from tests.reference.enumeration import law_of_mu


def simulated_energies(rng, steps, probability, contraction, count):
    unit = contraction ** np.arange(steps)[::-1]
    energies = np.zeros(count)
    for i in range(count):
        seen = np.flatnonzero(rng.random(steps) < probability)
        if seen.size:
            energies[i] = minorant_of_arrivals(seen, unit[seen], unit**2).energy
    return energies


class TestParticipations:
    @pytest.mark.parametrize(
        "steps, probability", [(1, 0.3), (2, 0.5), (7, 0.1), (9, 0.6), (9, 1.0)]
    )
    def test_enumeration(self, steps, probability):
        law = participation_law(steps, probability)
        mus, chances = law_of_mu(steps=steps, probability=probability, contraction=1.0)
        cell = law.energies[1] - law.energies[0]
        for level in np.linspace(0.0, steps, 80):
            above = law.masses[law.energies > level].sum() + law.lost
            assert above >= chances[mus**2 > level + 1e-9].sum() - 1e-12
            # Rounding up moves the energy by less than a cell a face.
            later = law.masses[law.energies > level + cell * steps].sum()
            assert later <= chances[mus**2 > level - 1e-9].sum() + 1e-9

    @pytest.mark.parametrize(
        "steps, probability", [(50, 0.2), (400, 0.025), (1000, 0.001), (300, 0.9)]
    )
    def test_mean(self, steps, probability):
        law = participation_law(steps, probability)
        harmonic = sum(1 / k for k in range(1, steps + 1))
        exact = probability**2 * steps + probability * (1 - probability) * harmonic
        mean = law.energies @ law.masses
        cell = law.energies[1] - law.energies[0]
        assert exact * (1 - 1e-6) <= mean <= exact + cell * harmonic

    def test_simulation(self):
        rng = np.random.default_rng(0)
        law = participation_law(300, 0.05)
        energies = simulated_energies(rng, 300, 0.05, 1.0, 4000)
        for level in np.quantile(energies, [0.1, 0.5, 0.9, 0.99]):
            above = law.masses[law.energies > level].sum() + law.lost
            seen = np.mean(energies > level)
            assert above >= seen - 4 * math.sqrt(seen / 4000)
            assert above <= seen + 0.05

    def test_is_a_law_and_says_what_it_lost(self):
        law = participation_law(100, 0.1)
        assert law.masses.min() >= 0.0
        assert law.masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert 0.0 < law.lost < 1e-8

    def test_is_computed_once(self):
        assert participation_law(100, 0.1) is participation_law(100, 0.1)


class TestLeftovers:
    @pytest.mark.parametrize(
        "gap, steps, probability",
        [(0.1, 30, 0.2), (0.001, 3000, 0.02), (0.0, 40, 0.1), (0.5, 6, 0.9), (1e-3, 20_000, 0.05)],
    )
    @pytest.mark.parametrize("cap", [math.inf, 1.5])
    def test_dominates_simulation(self, gap, steps, probability, cap):
        rng = np.random.default_rng(1)
        levels, masses = leftover_law(gap=gap, steps=steps, probability=probability, cap=cap)
        assert masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert masses.min() >= 0.0
        memory = min(steps, 20_000)
        weights = (1 - gap) ** np.arange(memory)
        draws = np.array([(weights * (rng.random(memory) < probability)).sum() for _ in range(500)])
        draws = np.minimum(draws, cap)
        for level in np.quantile(draws, [0.1, 0.5, 0.9]):
            seen = np.mean(draws > level)
            assert masses[levels > level].sum() >= seen - 4 * math.sqrt(seen / 500)

    def test_never_beyond_what_is_possible(self):
        levels, _ = leftover_law(gap=0.5, steps=50, probability=0.5, cap=math.inf)
        assert levels.max() <= 2.0 * (1 + 1e-9)
        levels, _ = leftover_law(gap=0.0, steps=50, probability=0.5, cap=3.0)
        assert levels.max() <= 3.0 * (1 + 1e-9)

    def test_no_earlier_steps(self):
        levels, masses = leftover_law(gap=0.1, steps=0, probability=0.5, cap=math.inf)
        assert (levels.tolist(), masses.tolist()) == ([0.0], [1.0])
