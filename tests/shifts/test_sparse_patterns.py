"""Few arrivals: the engine's own answer on the same steps written out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.shifts.optimal_shifts import optimal_shifts, pattern_mus
from lastiterate.shifts.patterns import NOTHING_SPENT, Participations, Spent, mus_of_few
from tests.reference.shifts import gdp_of_linear_shifts


def written_out(gap, participations, release, spent=NOTHING_SPENT):
    """The least mu, by the engine, of every arrival as a step of its own."""
    seen = {}
    for one in participations:
        for k in range(one.more + 1):
            seen[one.tail + k * one.period] = seen.get(one.tail + k * one.period, 0.0) + one.times
    steps = max(seen) + 1
    arriving = np.zeros(steps + 1)
    for tail, times in seen.items():
        arriving[steps - 1 - tail] = times
    contraction = np.append(np.full(steps, 1.0 - gap), 1.0)
    left = np.where(np.arange(steps)[::-1] < spent.steps, math.sqrt(1.0 - spent.share), 1.0)
    noise = np.append(left, math.sqrt(release))
    return optimal_shifts(contraction=contraction, sensitivity=arriving, noise=noise).mu


@given(
    gap=st.sampled_from([0.0, 1e-9, 1e-4, 0.01, 0.3, 1.0]),
    tails=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    times=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=4, max_size=4),
    more=st.integers(0, 30),
    period=st.integers(1, 20),
    release=st.sampled_from([0.0, 0.5, 30.0]),
)
def test_is_the_engine_s_optimum(gap, tails, times, more, period, release):
    tails = sorted(tails, reverse=True)
    participations = [
        Participations(tail, factor, more if i == 0 else 0, period)
        for i, (tail, factor) in enumerate(zip(tails, times, strict=False))
    ]
    found = float(mus_of_few(gap=gap, participations=participations, release_in_steps=release))
    exact = written_out(gap, participations, release)
    # The engine's is rounded up too, by far less.
    assert exact * (1 - 1e-11) <= found <= exact * (1 + 1e-8)


@given(
    gap=st.sampled_from([0.0, 1e-4, 0.3]),
    tails=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    more=st.integers(0, 5),
    steps=st.integers(0, 30),
    share=st.sampled_from([0.0, 0.4, 0.999]),
)
def test_where_noise_of_the_last_steps_is_spent(gap, tails, more, steps, share):
    tails = sorted(tails, reverse=True)
    spent = Spent(steps, share)
    participations = [Participations(tail, 1.0, more * (i == 0), 7) for i, tail in enumerate(tails)]
    if more and tails[0] + 1 < steps:
        with pytest.raises(ValueError, match="spent"):
            mus_of_few(gap=gap, participations=participations, spent=spent)
        return
    found = float(
        mus_of_few(gap=gap, participations=participations, release_in_steps=0.5, spent=spent)
    )
    exact = written_out(gap, participations, 0.5, spent)
    assert exact * (1 - 1e-11) <= found <= exact * (1 + 1e-8)


def test_of_which_some_have_more_before_them():
    tails, more = np.array([0, 3, 7]), np.array([2, 1, 0])
    found = mus_of_few(gap=0.01, participations=[Participations(tails, 1.0, more, 9)])
    for one, tail, count in zip(found, tails.tolist(), more.tolist(), strict=True):
        exact = written_out(0.01, [Participations(tail, 1.0, count, 9)], 0.0)
        assert one == pytest.approx(exact, rel=1e-8)


def test_many_at_once():
    tails = np.array([0, 3, 7])
    together = mus_of_few(
        gap=0.1, participations=[Participations(9, 1.0, 5, 10), Participations(tails)]
    )
    for tail, mu in zip(tails.tolist(), together, strict=True):
        alone = mus_of_few(
            gap=0.1, participations=[Participations(9, 1.0, 5, 10), Participations(tail)]
        )
        assert mu == pytest.approx(float(alone), rel=1e-14)


@pytest.mark.parametrize("gap", [1e-12, 1e-4])
def test_a_trillion_participations_are_quick(gap):
    few, many = (
        float(mus_of_few(gap=gap, participations=[Participations(0, 1.0, more, 1000)]))
        for more in (10**9, 10**12)
    )
    assert few <= many * (1 + 1e-8)
    assert many < math.inf


class TestPositionsOfSchedules:
    """All places at once: what a convex solver finds for each."""

    @staticmethod
    def random(rng, *, falling):
        period = int(rng.integers(1, 7))
        steps = int(rng.integers(1, 4 * period + 1))
        contraction = rng.choice([1.0, 0.99, 0.6, 1.05], size=steps)
        shape = np.linspace(1.0, 0.1, steps) if falling else rng.uniform(0.05, 1.0, steps)
        noise = np.sqrt(shape) if falling else rng.uniform(0.05, 1.0, steps)
        return period, {
            "contraction": np.append(np.ones(steps) if falling else contraction, 1.0),
            "sensitivity": np.append(shape, 0.0),
            "noise": np.append(noise, rng.uniform(0.05, 2.0)),
        }

    @pytest.mark.parametrize("falling", [False, True])
    def test_equals_a_convex_solver(self, falling):
        rng = np.random.default_rng(3)
        for _ in range(60):
            period, run = self.random(rng, falling=falling)
            steps = run["noise"].size - 1
            patterns = [np.arange(place, steps, period) for place in range(min(period, steps))]
            mus = pattern_mus(**run, patterns=patterns, period=period)
            assert len(mus) == len(patterns)
            for mu, pattern in zip(mus, patterns, strict=True):
                shifts = np.zeros(steps + 1)
                shifts[pattern] = run["sensitivity"][pattern]
                exact = gdp_of_linear_shifts(
                    contractions=run["contraction"], shifts=shifts, noise_stds=run["noise"]
                )
                assert exact * (1 - 1e-12) <= mu <= exact * (1 + 1e-9)

    def test_no_more_is_rounded_than_one_by_one(self):
        rng = np.random.default_rng(4)
        for _ in range(100):
            period, run = self.random(rng, falling=False)
            steps = run["noise"].size - 1
            patterns = [np.arange(place, steps, period) for place in range(min(period, steps))]
            alone = pattern_mus(**run, patterns=patterns)
            assert pattern_mus(**run, patterns=patterns, period=period) == pytest.approx(
                alone, rel=1e-13
            )
