"""What earlier participations leave: laws that dominate simulations and are not far above."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.participation_energy.exact_windows import (
    best_windows,
    rate_per_unpaid,
)
from lastiterate.bounds.subsampling.participation_energy.residual_law import (
    energy_of_payments,
    unpaid_law,
)
from tests.slow import slow

SETTINGS = [
    (0.1, 30, 0.2),
    (0.001, 3000, 0.02),
    (0.0, 40, 0.1),
    (0.5, 6, 0.9),
    slow(1e-3, 20_000, 0.05),
    (0.02, 300, 0.3),
]


def simulated(rng, gap, steps, probability, cap, payment, count):
    """The plan as it is: nothing is paid that is not there."""
    memory = min(steps, 8000)
    left = np.zeros(count)
    for age in range(memory - 1, -1, -1):
        arrived = (1 - gap) * left + (rng.random(count) < probability)
        left = np.minimum(np.maximum(arrived - payment * (1 - gap) ** age, 0.0), cap)
    return left


class TestUnpaid:
    @pytest.mark.parametrize("gap, steps, probability", SETTINGS)
    @pytest.mark.parametrize("cap", [math.inf, 1.5])
    @pytest.mark.parametrize("paid", [0.0, 0.5, 1.2])
    def test_dominates_simulation(self, gap, steps, probability, cap, paid):
        rng = np.random.default_rng(1)
        payment = paid * probability
        law = unpaid_law(gap=gap, steps=steps, probability=probability, cap=cap, payment=payment)
        assert law.masses.sum() == pytest.approx(1.0, abs=1e-9 + law.lost)
        assert law.masses.min() >= 0.0
        draws = simulated(rng, gap, steps, probability, cap, payment, 1000)
        for level in np.quantile(draws, [0.1, 0.5, 0.9, 0.99]):
            seen = np.mean(draws > level)
            assert law.masses[law.levels > level].sum() >= seen - 4 * math.sqrt(seen / 1000)

    @pytest.mark.parametrize("gap, steps, probability", [(0.001, 8000, 0.025), (0.01, 900, 0.1)])
    @pytest.mark.parametrize("paid", [0.0, 0.7])
    def test_near_simulation(self, gap, steps, probability, paid):
        rng = np.random.default_rng(2)
        payment = paid * probability
        law = unpaid_law(
            gap=gap, steps=steps, probability=probability, cap=math.inf, payment=payment
        )
        draws = simulated(rng, gap, steps, probability, math.inf, payment, 1000)
        mean, error = draws.mean(), draws.std() / math.sqrt(1000)
        assert mean - 4 * error <= law.levels @ law.masses <= 1.05 * mean + 4 * error

    @pytest.mark.parametrize("gap, steps", [(0.1, 400), (0.2, 200), (0.25, 100)])
    def test_a_cap_between_the_last_two_cells(self, gap, steps):
        """Nothing is beyond it, so that no cap may change the law."""
        free = unpaid_law(gap=gap, steps=steps, probability=0.5, cap=math.inf)
        for more in (-1e-3, 0.0, 1e-12, 1e-4, 1e-3):
            cap = 1.0 / gap + 2.0 + more
            law = unpaid_law(gap=gap, steps=steps, probability=0.5, cap=cap)
            np.testing.assert_array_equal(law.levels, free.levels)
            np.testing.assert_array_equal(law.masses, free.masses)

    def test_never_beyond_what_is_possible(self):
        law = unpaid_law(gap=0.5, steps=50, probability=0.5, cap=math.inf)
        assert law.levels.max() <= 2.0 * (1 + 1e-9)
        law = unpaid_law(gap=0.0, steps=50, probability=0.5, cap=3.0)
        assert law.levels.max() <= 3.0 * (1 + 1e-9)

    def test_no_earlier_steps(self):
        law = unpaid_law(gap=0.1, steps=0, probability=0.5, cap=math.inf)
        assert (law.levels.tolist(), law.masses.tolist()) == ([0.0], [1.0])

    @pytest.mark.parametrize("gap", [0.0, 1e-6, 0.01, 0.7, 1.0])
    @pytest.mark.parametrize("steps", [0, 1, 50])
    def test_what_payments_cost(self, gap, steps):
        exact = sum((1 - gap) ** (2 * j) for j in range(steps))
        assert energy_of_payments(gap, steps, 0.1) >= 0.01 * exact


class TestWindow:
    @pytest.mark.parametrize("gap", [0.0, 1e-3, 0.2, 1.0])
    @pytest.mark.parametrize("release", [0.0, 30.0])
    def test_price(self, gap, release):
        squares = sum((1 - gap) ** (2 * j) for j in range(40))
        exact = (1 - gap) ** 40 / math.sqrt(squares + release)
        assert exact <= rate_per_unpaid(gap, 40, release) <= exact * (1 + 1e-9) + 1e-290

    def test_endless_runs_have_one_window(self):
        assert best_windows(1e-2, 10_000, 0.02, math.inf, 0.0) == best_windows(
            1e-2, 10**9, 0.02, math.inf, 0.0
        )

    def test_short_runs_are_solved_whole(self):
        assert best_windows(1e-4, 500, 0.02, math.inf, 0.0) == ((500, 0.0),)
