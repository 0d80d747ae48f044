"""Exponential moments of energies: never below those of every set of participations."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling import energy_moments as module
from lastiterate.bounds.subsampling.energy_moments import (
    binomial_window,
    energy_moments,
    face_moments,
    recursive_moments,
)
from tests.reference.enumeration import law_of_mu

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
        monkeypatch.setattr("lastiterate.bounds.subsampling.energy_moments._PARTS", 1e9)
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
    module._cache.cache_clear()
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
