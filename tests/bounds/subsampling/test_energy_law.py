"""The law of random participations, with or without noise on release: never below the truth."""

import math

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from lastiterate.bounds.subsampling import energy_law
from lastiterate.bounds.subsampling.energy_law import law_with_release, participation_law
from tests.bounds.subsampling.simulated import simulated_energies
from tests.reference.enumeration import law_of_mu, participations


def above(law, level):
    """The probability of more than a level."""
    return law.masses[law.energies > level].sum() + law.lost


class TestParticipations:
    @pytest.mark.parametrize(
        "steps, probability", [(1, 0.3), (2, 0.5), (7, 0.1), (9, 0.6), (9, 1.0), (14, 0.25)]
    )
    def test_enumeration(self, steps, probability):
        law = participation_law(steps, probability)
        mus, chances = law_of_mu(steps=steps, probability=probability)
        cell = law.energies[1] - law.energies[0]
        for level in np.linspace(0.0, steps, 80):
            assert above(law, level) >= chances[mus**2 > level + 1e-9].sum() - 1e-12
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
        energies = simulated_energies(rng, 300, 0.05, 1.0, 2000)
        for level in np.quantile(energies, [0.1, 0.5, 0.9, 0.99]):
            seen = np.mean(energies > level)
            assert above(law, level) >= seen - 4 * math.sqrt(seen / 2000)
            assert above(law, level) <= seen + 0.05

    def test_is_a_law_and_says_what_it_lost(self):
        law = participation_law(100, 0.1)
        assert law.masses.min() >= 0.0
        assert law.masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert 0.0 < law.lost < 1e-8

    def test_is_computed_once(self):
        assert participation_law(100, 0.1) is participation_law(100, 0.1)


def cost_of_plan(seen, slope, worth):
    """Slopes of the minorant, cut at `slope`, with the excess left to the release."""
    slopes = isotonic_regression(seen).x
    steep = slopes > slope
    excess = slopes[steep].sum() - slope * steep.sum()
    flat = np.sum(slopes[~steep] ** 2)
    return flat + min(slope**2 * steep.sum() + excess**2 / worth, slopes[steep].sum())


@pytest.mark.parametrize("worth", [0.8, 3.0, 20.0, 1000.0])
@pytest.mark.parametrize(
    "steps, probability", [(1, 0.3), (2, 0.1), (9, 0.05), (11, 0.2), (10, 0.6)]
)
class TestReleaseEnumerated:
    def test_never_below_the_least_energy(self, steps, probability, worth):
        law = law_with_release(steps, probability, worth)
        mus, chances = law_of_mu(steps=steps, probability=probability, worth=worth)
        for level in np.linspace(0.0, 1.1 * np.max(mus) ** 2, 80):
            assert above(law, level) >= chances[mus**2 > level + 1e-9].sum() - 1e-12

    def test_is_the_law_of_the_plan(self, steps, probability, worth):
        chosen = energy_law._slope(steps, probability, worth)
        if chosen is None:
            pytest.skip("too little noise on release to be of use: the law is that without it")
        law = law_with_release(steps, probability, worth)
        sets, chances = participations(steps, probability)
        costs = np.array([cost_of_plan(seen, chosen.slope, worth) for seen in sets])
        cell = law.energies[1] - law.energies[0]
        mean = law.energies @ law.masses
        assert costs @ chances - 1e-7 <= mean <= costs @ chances + (steps + 1) * cell
        for level in np.linspace(0.0, costs.max(), 50):
            later = law.masses[law.energies > level + (steps + 1) * cell].sum()
            assert later <= chances[costs > level - 1e-9].sum() + 1e-8


class TestReleased:
    def test_chances_add_up(self):
        law = law_with_release(400, 0.025, 40.0)
        assert law.masses.min() >= 0.0
        assert law.masses.sum() == pytest.approx(1.0, abs=1e-9)
        assert 0.0 < law.lost < 1e-8

    @pytest.mark.parametrize("worth", [0.0, 1e-9])
    def test_nothing_to_hide_behind(self, worth):
        assert law_with_release(50, 0.2, worth) is participation_law(50, 0.2)

    def test_more_noise_never_costs_more(self):
        costs = []
        for worth in (0.0, 1.0, 75.0, 4000.0):
            law = law_with_release(300, 0.05, worth)
            costs.append(law.energies @ law.masses)
        assert np.all(np.diff(costs) <= 0.02 * costs[0])
        # Nearly all noise is on release: one chord, of 15 participations on average.
        assert costs[-1] == pytest.approx((15**2 + 15) / 4300, rel=0.05)

    def test_another_worth_uses_the_same_transforms(self, monkeypatch):
        law_with_release(200, 0.05, 40.0)
        monkeypatch.setattr(
            energy_law,
            "coefficients",
            lambda *_: pytest.fail("computed again"),
        )
        assert law_with_release(200, 0.05, 40.1).lost < 1e-8

    def test_near_the_exact_mixture(self):
        rng = np.random.default_rng(0)
        law = law_with_release(1000, 0.025, 40.0)
        variances = np.append(np.ones(1000), 40.0)
        energies = []
        for _ in range(400):
            seen = np.append(rng.random(1000) < 0.025, 0.0)
            slopes = isotonic_regression(seen / variances, weights=variances).x
            energies.append(slopes**2 @ variances)
        mean, error = np.mean(energies), np.std(energies) / math.sqrt(400)
        assert mean - 4 * error <= law.energies @ law.masses <= 1.06 * mean + 4 * error
