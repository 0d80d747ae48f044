"""Balanced batches: integrals over the noise of four steps, and enumerated draws."""

from itertools import combinations, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.balanced import (
    _draws_that_wait,
    _last_two_waits,
    _latest_participations,
    _waits_of_draw_before,
)
from tests.bounds.runs import described, dp_sgd
from tests.reference.balanced_batches import adaptive_deltas, deltas
from tests.reference.random_allocation import deltas as deltas_of_one
from tests.slow import slow
from tests.test_open_sets import divergence

EVERY, LAST = "composition/balanced", "random-order/balanced"


def _run(batches, noise=1.0, *, steps=None, **others):
    return dp_sgd(batches, steps or batches.steps_per_draw, noise=noise, **others)


def _profile(run):
    return li.account(run, bounds=EVERY)


class TestEveryIterate:
    @pytest.mark.parametrize("ratio", [0.3, 1.5, 3.0])
    @pytest.mark.parametrize("size", [10, 20])
    def test_no_less_than_the_integral_over_the_noise(self, ratio, size):
        """Two of four steps (batches of half of the examples), or all four."""
        rule = li.BalancedSampled(20, size, epochs=4 * size // 20)
        assert rule.steps_per_draw == 4
        report = _profile(_run(rule, 1 / ratio))
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            exact = max(deltas(ratio, 4 * size // 20, epsilon)) - 1e-13  # what the integral is off
            assert exact <= report.delta(epsilon)

    def test_no_dependence_on_earlier_results_leaks_more(self):
        rule, generator = li.BalancedSampled(20, 10, epochs=2), np.random.default_rng(3)
        report = _profile(_run(rule))
        for _ in range(3):
            slopes, offsets = generator.uniform(-3, 3, (2, 4))

            def shift(t, noise, slopes=slopes, offsets=offsets):
                return np.tanh(slopes[t] * sum(noise, 0.0) + offsets[t])

            epsilon = float(generator.uniform(0.0, 2.0))
            leaks = adaptive_deltas(shift, 2, epsilon)
            assert max(leaks) <= report.delta(epsilon) * (1 + 1e-6)

    def test_a_cut_draw_costs_no_more_than_a_whole_one(self):
        rule = li.BalancedSampled(20, 10, epochs=2)
        cut, whole = _profile(_run(rule, steps=3)), _profile(_run(rule))
        more = _profile(_run(rule, steps=5))
        assert cut.epsilon(1e-5) == whole.epsilon(1e-5) < more.epsilon(1e-5)

    def test_an_example_that_is_replaced(self):
        rule = li.BalancedSampled(20, 10, epochs=2)
        one = _profile(_run(rule, 2.0))
        other = _profile(_run(rule, 2.0, adjacency="replace"))
        assert one.epsilon(1e-5) < other.epsilon(1e-5)

    def test_one_of_every_epoch_is_balls_and_bins(self):
        balanced = _profile(_run(li.BalancedSampled(1_000, 10, epochs=1), steps=300))
        bins = _run(li.BallsAndBinsEachEpoch(1_000, 10), steps=300)
        other = li.account(bins, bounds="composition/balls-and-bins")
        assert balanced.epsilon(1e-6) == pytest.approx(other.epsilon(1e-6), rel=1e-9)
        exact = max(deltas_of_one([1.0] * 2, 0.5, 0.5))
        report = _profile(_run(li.BalancedSampled(20, 10, epochs=1)))
        assert exact * (1 - 3e-5) <= report.delta(0.5) <= exact * 1.001

    @pytest.mark.parametrize("ratio", [0.3, 1.0])
    def test_near_the_integral_over_the_noise(self, ratio):
        report = _profile(_run(li.BalancedSampled(20, 10, epochs=2), 1 / ratio))
        exact = max(deltas(ratio, 2, 0.2))
        assert report.delta(0.2) <= 1.6 * exact

    @pytest.mark.parametrize(
        "examples, size, epochs, noise",
        [
            (100, 50, 5, 0.5), (100, 50, 5, 5.0), (1_000, 10, 10, 1.0), slow(60_000, 600, 20, 0.7),
            slow(50_000, 500, 30, 2.0), slow(1_000, 10, 10, 0.5), slow(60_000, 600, 20, 5.0),
        ],
    )  # fmt: skip
    def test_never_above_poisson_batches_of_the_same_expected_size(
        self, examples, size, epochs, noise
    ):
        run = _run(li.BalancedSampled(examples, size, epochs), noise)
        poisson = li.account(run.replace(batches=li.PoissonSampled(examples, size)))
        fixed = li.account(run, bounds="composition/fixed-order")
        for delta in (1e-3, 1e-5, 1e-8):
            found = _profile(run).epsilon(delta)
            assert found <= poisson.epsilon(delta)
            assert found <= fixed.epsilon(delta) * 1.001

    def test_released_batches_are_refused(self):
        run = _run(li.BalancedSampled(100, 10), releases="last-iterate-and-order")
        assert "secret" in str(li.account(run).unmet[EVERY][0])

    @pytest.mark.parametrize("epochs", [0, -1, 1.5, float("nan"), "2"])
    def test_numbers_of_epochs(self, epochs):
        with pytest.raises(li.InvalidParameter, match="epochs"):
            li.BalancedSampled(100, 10, epochs)


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
    run = described(
        rule, steps, loss=li.Loss(smoothness=penalty, regulariser=penalty), step_size=step_size,
        sensitivity=ratio * size, release_noise_std=release,
        adjacency=str(generator.choice(["zero-out", "replace"])),
    )  # fmt: skip
    weights = (1 - step_size * penalty) ** np.arange(steps)[::-1]
    std = np.hypot(step_size * np.linalg.norm(weights), release)
    sums = [weights[seen].sum() for seen in _sets(length, epochs, steps)]
    return run, step_size * ratio * np.array(sums) / std


class TestLastIterate:
    @pytest.mark.parametrize("seed, count", [(0, 40), slow(1, 500)])
    def test_enumerated_instances(self, seed, count):
        generator = np.random.default_rng(seed)
        for _ in range(count):
            run, means = _instance(generator)
            report, each = li.account(run, bounds=LAST), np.full(means.size, 1.0 / means.size)
            for epsilon in (0.0, 0.5, 2.0):
                assert divergence(each, means, epsilon) <= report.delta(epsilon) + 1e-12, run

    @pytest.mark.parametrize("steps", [3, 4, 6, 9, 11])
    def test_sets_are_charged_no_less_than_they_have(self, steps):
        """Of all sets some have `most` participations after a step; of those charged, no fewer."""
        rule = li.BalancedSampled(6, 3, 2)
        sets = list(_sets(rule.steps_per_draw, 2, steps))
        terms = list(product(_last_two_waits(rule, steps), _waits_of_draw_before(rule, steps)))
        assert sum(one * other for (_, one), (_, other) in terms) == pytest.approx(1.0, abs=1e-14)
        charged = [
            (_latest_participations(rule, steps, waits, before)[0] - 1, chance * share)
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

    def test_less_than_a_fixed_order_and_than_composition_of_long_runs(self):
        run = described(
            li.BalancedSampled(200, 20, 2), 2_000, step_size=0.5, noise_std=0.25,
            loss=li.Loss(smoothness=1.0, regulariser=0.2), adjacency="zero-out",
        )  # fmt: skip
        report = li.account(run)
        assert report.bound == LAST
        assert report.epsilon(1e-5) < report.all[EVERY].epsilon(1e-5)

    def test_schedules_are_refused(self):
        run = described(li.BalancedSampled(100, 10), 40, step_size=[0.1] * 39 + [0.2])
        assert LAST in li.account(run).unmet
