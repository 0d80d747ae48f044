"""The law of random participations: exact where it can be enumerated, never below."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.energy_law import participation_law
from lastiterate.shifts.minorant import sparse_minorant
from tests.reference.enumeration import law_of_mu


def simulated_energies(rng, steps, probability, contraction, count):
    unit = contraction ** np.arange(steps)[::-1]
    energies = np.zeros(count)
    for i in range(count):
        seen = np.flatnonzero(rng.random(steps) < probability)
        if seen.size:
            energies[i] = sparse_minorant(seen, unit[seen], unit**2).energy
    return energies


class TestParticipations:
    @pytest.mark.parametrize(
        "steps, probability", [(1, 0.3), (2, 0.5), (7, 0.1), (9, 0.6), (9, 1.0), (14, 0.25)]
    )
    def test_enumeration(self, steps, probability):
        law = participation_law(steps, probability)
        mus, chances = law_of_mu(steps=steps, probability=probability)
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
