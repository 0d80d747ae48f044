"""Shifts under moduli that are convex and jump: true, feasible, and near the best of a grid."""

import math

import numpy as np
import pytest

from lastiterate.shifts.subgradient_shifts import SubgradientSteps, subgradient_mu


def steps(sensitivity, *, keep=1.0, jump=1.0, noise=1.0):
    count = len(sensitivity)
    each = (np.full(count, float(x)) if np.ndim(x) == 0 else np.array(x) for x in (keep, jump))
    return SubgradientSteps(*each, np.array(sensitivity, float), np.full(count, float(noise)))


class TestModulusIsTrue:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("penalty", [0.0, 0.7, 2.0])
    def test_maxima_of_affine_functions(self, adjacency, penalty):
        """Subgradients of convex losses in the plane, the first of three being another's."""
        rng = np.random.default_rng(0)
        eta, size, bound = 0.5, 3, 1.0
        worst = 0.0
        for _ in range(3000):
            slopes = rng.normal(size=(4, 5, 2))
            slopes *= bound / np.maximum(np.linalg.norm(slopes, axis=2, keepdims=True), 1e-9)
            slopes *= rng.choice([1.0, rng.uniform()], (4, 5, 1))
            heights = rng.normal(size=(4, 5)) * 0.1

            def subgradient(which, x, slopes=slopes, heights=heights):
                return slopes[which, np.argmax(slopes[which] @ x + heights[which])]

            x = rng.normal(size=2)
            y = x + rng.normal(size=2) * 10 ** rng.uniform(-4, 0.5)
            ours = sum(subgradient(i, x) for i in range(size)) / size
            theirs = sum(subgradient(i, y) for i in range(1, size)) / size
            if adjacency == "replace":
                theirs = theirs + subgradient(3, y) / size
            moved = (1 - eta * penalty) * (x - y) - eta * (ours - theirs)
            s = eta * bound * (2.0 if adjacency == "replace" else 1.0) / size
            one = steps([s], keep=1 - eta * penalty, jump=2 * eta * bound)
            most = one.modulus(0, float(np.linalg.norm(x - y)))
            worst = max(worst, float(np.linalg.norm(moved)) / most)
        assert 0.7 < worst <= 1.0 + 1e-12

    def test_equal_points_are_driven_apart_by_the_example_alone(self):
        one = steps([0.3], jump=5.0)
        assert one.modulus(0, 0.0) == 0.3
        assert one.modulus(0, 1e-12) >= 5.0
        assert steps([0.0]).modulus(0, 0.0) == 0.0

    def test_one_example_a_batch_is_the_trivial_modulus(self):
        # s = J: two opposite subgradients may add up.
        assert steps([1.0], jump=1.0).modulus(0, 2.0) == pytest.approx(3.0)


def on_a_grid(problem, start, diameter, cells=1500):
    """The least mu of plans whose distances are on a grid: a plan of its own, from above."""
    top = min(
        diameter, 1.2 * (start + problem.sensitivity.sum() + np.sqrt((problem.jump**2).sum()))
    )
    grid = np.linspace(0.0, top, cells)
    cost = np.where(grid == 0.0, 0.0, math.inf)
    best = math.inf
    for k in range(problem.noise.size - 1, -1, -1):
        reached = np.array([problem.modulus(k, z) for z in grid])
        unpaid = np.maximum(reached[:, None] - grid, 0.0)
        if diameter < math.inf:
            unpaid[:, -1] = 0.0
        cost = np.min((unpaid / problem.noise[k]) ** 2 + cost, axis=1)
        if k and diameter < math.inf:
            best = min(best, cost[-1])
    return math.sqrt(min(best, np.interp(start, grid, cost) if start else cost[0]))


class TestTightness:
    @pytest.mark.parametrize("seed", range(12))
    def test_against_dynamic_programming(self, seed):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 14))
        seen = (rng.random(count) < 0.5) * rng.uniform(0.3, 1.0)
        problem = steps(seen, jump=rng.uniform(0.1, 1.0), keep=rng.choice([1.0, 0.9]))
        diameter = float(rng.choice([math.inf, rng.uniform(0.5, 3.0)]))
        start = float(rng.choice([0.0, 1.0])) * min(diameter, 1.0)
        found = subgradient_mu(problem, start=start, diameter=diameter)
        assert found <= on_a_grid(problem, start, diameter) * 1.01 + 1e-9

    def test_never_above_composition(self):
        for seen in ([1.0] * 5, [0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]):
            assert subgradient_mu(steps(seen)) <= math.sqrt(sum(seen)) * (1 + 1e-9)

    def test_one_step_is_one_gaussian(self):
        assert subgradient_mu(steps([0.7], noise=2.0)) == pytest.approx(0.35)

    def test_nothing_to_hide(self):
        assert subgradient_mu(steps([0.0, 0.0])) == 0.0

    def test_a_ball_bounds_long_runs(self):
        once = [0.0] * 9 + [1.0]
        short, long = (subgradient_mu(steps(once * n), diameter=5.0) for n in (60, 100))
        assert long == pytest.approx(short, rel=0.02)
        assert long < math.sqrt(60)
