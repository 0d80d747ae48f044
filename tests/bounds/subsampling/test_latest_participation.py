"""The last iterate of balanced batches: instances whose draws are all enumerated."""

from itertools import combinations, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.balanced import _before, _draws_that_wait, _last_two, _positions
from tests.test_open_sets import divergence

BOUND = "random-order/balanced"


def _sets(length, often, steps):
    """All sets of steps that may see an example, as likely as each other."""
    draws = -(-steps // length)
    for chosen in product(combinations(range(length), often), repeat=draws):
        seen = (k + length * draw for draw, one in enumerate(chosen) for k in one)
        yield [k for k in seen if k < steps]


def _instance(generator):
    """A run whose losses are linear but for a penalty, with its means in units of the noise."""
    examples, size, epochs = [(4, 2, 2), (6, 2, 2), (4, 2, 3), (3, 1, 1), (4, 1, 1)][
        generator.integers(5)
    ]
    rule = li.BalancedSampled(examples, size, epochs)
    length = rule.steps_per_draw
    steps = int(generator.integers(1, min(2 * length, 8) + 1))
    step_size, penalty = generator.uniform(0.05, 0.5), generator.choice([1e-3, 0.1, 1.0])
    ratio, release = generator.uniform(0.2, 3.0), generator.choice([0.0, 0.3])
    run = li.TrainingRun(
        loss=li.Loss(smoothness=penalty, regulariser=penalty),
        sensitivity=ratio * size,
        batches=rule,
        steps=steps,
        step_size=step_size,
        noise_std=1.0,
        release_noise_std=release,
        adjacency=str(generator.choice(["zero-out", "replace"])),
    )
    weights = (1 - step_size * penalty) ** np.arange(steps)[::-1]
    std = np.hypot(step_size * np.linalg.norm(weights), release)
    sums = [weights[seen].sum() for seen in _sets(length, epochs, steps)]
    return run, step_size * ratio * np.array(sums) / std


def _check(seed, count):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        run, means = _instance(generator)
        report = li.account(run, bounds=BOUND)
        each = np.full(means.size, 1.0 / means.size)
        for epsilon in (0.0, 0.5, 2.0):
            exact = divergence(each, means, epsilon)
            assert exact <= report.delta(epsilon) + 1e-12, run


class TestSoundness:
    def test_enumerated_instances(self):
        _check(seed=0, count=40)

    @pytest.mark.slow
    def test_500_enumerated_instances(self):
        _check(seed=1, count=500)

    @pytest.mark.parametrize("steps", [3, 4, 6, 9, 11])
    def test_sets_are_charged_no_less_than_they_have(self, steps):
        """Of all sets some have `most` participations after a step; of those charged, no fewer."""
        rule = li.BalancedSampled(6, 3, 2)
        sets = list(_sets(rule.steps_per_draw, 2, steps))
        terms = list(product(_last_two(rule, steps), _before(rule, steps)))
        assert sum(one * other for (_, one), (_, other) in terms) == pytest.approx(1.0, abs=1e-14)
        charged = [
            (_positions(rule, steps, waits, before)[0] - 1, chance * share)
            for (waits, chance), (before, share) in terms
        ]
        for k, most in product(range(steps + 1), range(5)):
            own = sum(sum(one >= k for one in seen) >= most for seen in sets) / len(sets)
            found = sum(p for seen, p in charged if np.count_nonzero(seen >= k) >= most)
            assert found >= own - 1e-14

    def test_chances_of_a_wait(self):
        rule = li.BalancedSampled(6, 2, 2)
        sets = list(_sets(6, 2, 6))
        for wait in range(7):
            often = sum(max(seen) < 6 - wait for seen in sets) / len(sets)
            chance = _draws_that_wait(rule, wait) / _draws_that_wait(rule, 0)
            assert chance == pytest.approx(often, abs=1e-15)


class TestTightness:
    def test_less_than_a_fixed_order_and_than_composition_of_long_runs(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, regulariser=0.2),
            sensitivity=1.0,
            batches=li.BalancedSampled(1_000, 50, 2),
            steps=4_000,
            step_size=0.5,
            noise_std=0.1,
            adjacency="zero-out",
        )
        report = li.account(run)
        assert report.bound == BOUND
        assert report.epsilon(1e-5) < report.all["composition/balanced"].epsilon(1e-5)


class TestRefusals:
    def test_schedules(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0),
            sensitivity=1.0,
            batches=li.BalancedSampled(100, 10),
            steps=40,
            step_size=[0.1] * 39 + [0.2],
            noise_std=1.0,
        )
        assert BOUND in li.account(run).unmet
