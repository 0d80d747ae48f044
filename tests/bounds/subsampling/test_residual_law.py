"""The residual of earlier participations: laws dominate simulations and are not far above."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.average import (
    best_windows,
    cost_per_residual,
    residual_law,
    shift_energy,
)
from tests.slow import slow

SETTINGS = [
    (0.1, 30, 0.2),
    (0.001, 2000, 0.02),
    (0.0, 40, 0.1),
    (0.5, 6, 0.9),
    slow(1e-3, 20_000, 0.05),
    (0.02, 300, 0.3),
]


def simulated(rng, gap, steps, probability, cap, shift, count):
    """The shifts as they are: no shift exceeds the distance."""
    memory = min(steps, 5000)
    left = np.zeros(count)
    for age in range(memory - 1, -1, -1):
        distance = (1 - gap) * left + (rng.random(count) < probability)
        left = np.minimum(np.maximum(distance - shift * (1 - gap) ** age, 0.0), cap)
    return left


class TestResidual:
    @pytest.mark.parametrize("gap, steps, probability", SETTINGS)
    @pytest.mark.parametrize("cap", [math.inf, 1.5])
    @pytest.mark.parametrize("relative", [0.0, 0.5, 1.2])
    def test_dominates_simulation(self, gap, steps, probability, cap, relative):
        rng = np.random.default_rng(1)
        shift = relative * probability
        law = residual_law(gap=gap, steps=steps, probability=probability, cap=cap, shift=shift)
        assert law.masses.sum() == pytest.approx(1.0, abs=1e-9 + law.lost)
        assert law.masses.min() >= 0.0
        draws = simulated(rng, gap, steps, probability, cap, shift, 500)
        for level in np.quantile(draws, [0.1, 0.5, 0.9, 0.99]):
            seen = np.mean(draws > level)
            assert law.masses[law.levels > level].sum() >= seen - 4 * math.sqrt(seen / 500)

    @pytest.mark.parametrize("gap, steps, probability", [(0.002, 4000, 0.025), (0.01, 900, 0.1)])
    @pytest.mark.parametrize("relative", [0.0, 0.7])
    def test_near_simulation(self, gap, steps, probability, relative):
        rng = np.random.default_rng(2)
        shift = relative * probability
        law = residual_law(gap=gap, steps=steps, probability=probability, cap=math.inf, shift=shift)
        draws = simulated(rng, gap, steps, probability, math.inf, shift, 500)
        mean, error = draws.mean(), draws.std() / math.sqrt(500)
        assert mean - 4 * error <= law.levels @ law.masses <= 1.05 * mean + 4 * error

    @pytest.mark.parametrize("gap, steps", [(0.1, 400), (0.2, 200), (0.25, 100)])
    def test_a_cap_between_the_last_two_cells(self, gap, steps):
        """Nothing is beyond it, so that no cap may change the law."""
        free = residual_law(gap=gap, steps=steps, probability=0.5, cap=math.inf)
        for more in (-1e-3, 0.0, 1e-12, 1e-4, 1e-3):
            cap = 1.0 / gap + 2.0 + more
            law = residual_law(gap=gap, steps=steps, probability=0.5, cap=cap)
            np.testing.assert_array_equal(law.levels, free.levels)
            np.testing.assert_array_equal(law.masses, free.masses)

    def test_never_beyond_what_is_possible(self):
        law = residual_law(gap=0.5, steps=50, probability=0.5, cap=math.inf)
        assert law.levels.max() <= 2.0 * (1 + 1e-9)
        law = residual_law(gap=0.0, steps=50, probability=0.5, cap=3.0)
        assert law.levels.max() <= 3.0 * (1 + 1e-9)

    def test_no_earlier_steps(self):
        law = residual_law(gap=0.1, steps=0, probability=0.5, cap=math.inf)
        assert (law.levels.tolist(), law.masses.tolist()) == ([0.0], [1.0])

    @pytest.mark.parametrize("gap", [0.0, 1e-6, 0.01, 0.7, 1.0])
    @pytest.mark.parametrize("steps", [0, 1, 50])
    def test_energy_of_shifts(self, gap, steps):
        exact = sum((1 - gap) ** (2 * j) for j in range(steps))
        assert shift_energy(gap, steps, 0.1) >= 0.01 * exact


class TestWindow:
    @pytest.mark.parametrize("gap", [0.0, 1e-3, 0.2, 1.0])
    @pytest.mark.parametrize("release", [0.0, 30.0])
    def test_cost_of_a_residual(self, gap, release):
        squares = sum((1 - gap) ** (2 * j) for j in range(40))
        exact = (1 - gap) ** 40 / math.sqrt(squares + release)
        assert exact <= cost_per_residual(gap, 40, release) <= exact * (1 + 1e-9) + 1e-290

    def test_endless_runs_have_one_window(self):
        assert best_windows(1e-2, 10_000, 0.02, math.inf, 0.0) == best_windows(
            1e-2, 10**9, 0.02, math.inf, 0.0
        )

    def test_short_runs_are_solved_whole(self):
        assert best_windows(1e-4, 500, 0.02, math.inf, 0.0) == ((500, 0.0),)
