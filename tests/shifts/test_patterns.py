"""Many participation patterns at once: each is the engine's own answer on its steps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.shifts.optimal_shifts import optimal_shifts, pattern_mus
from lastiterate.shifts.patterns import (
    NOTHING_SPENT,
    Participations,
    Spent,
    least_energies,
    mus_of_few,
)
from tests.reference.shifts import gdp_of_linear_shifts

GAPS = st.sampled_from([0.0, 1e-9, 1e-4, 0.01, 0.3, 1.0])
TAILS = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(lambda t: sorted(t, reverse=True))


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


def assert_is_the_optimum(gap, participations, release, spent=NOTHING_SPENT):
    found = mus_of_few(
        gap=gap, participations=participations, release_in_steps=release, spent=spent
    )
    exact = written_out(gap, participations, release, spent)
    # The engine's is rounded up too, by far less.
    assert exact * (1 - 1e-11) <= float(found) <= exact * (1 + 1e-8)


class TestFewParticipations:
    @given(
        gap=GAPS,
        tails=TAILS,
        times=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=4, max_size=4),
        more=st.integers(0, 30),
        period=st.integers(1, 20),
        release=st.sampled_from([0.0, 0.5, 30.0]),
    )
    def test_are_the_engine_s_optimum(self, gap, tails, times, more, period, release):
        participations = [
            Participations(tail, factor, more if i == 0 else 0, period)
            for i, (tail, factor) in enumerate(zip(tails, times, strict=False))
        ]
        assert_is_the_optimum(gap, participations, release)

    @settings(max_examples=60)
    @given(
        gap=GAPS, tails=TAILS, more=st.integers(0, 5), steps=st.integers(0, 30),
        share=st.sampled_from([0.0, 0.4, 0.999]),
    )  # fmt: skip
    def test_where_noise_of_the_last_steps_is_spent(self, gap, tails, more, steps, share):
        seen = [Participations(tail, 1.0, more * (i == 0), 7) for i, tail in enumerate(tails)]
        if more and tails[0] + 1 < steps:
            with pytest.raises(ValueError, match="spent"):
                mus_of_few(gap=gap, participations=seen, spent=Spent(steps, share))
        else:
            assert_is_the_optimum(gap, seen, 0.5, Spent(steps, share))

    def test_many_at_once(self):
        tails, more = np.array([0, 3, 7]), np.array([2, 1, 0])
        found = mus_of_few(gap=0.01, participations=[Participations(tails, 1.0, more, 9)])
        for mu, tail, count in zip(found, tails.tolist(), more.tolist(), strict=True):
            exact = written_out(0.01, [Participations(tail, 1.0, count, 9)], 0.0)
            assert mu == pytest.approx(exact, rel=1e-8)
        common = Participations(9, 1.0, 5, 10)
        found = mus_of_few(gap=0.1, participations=[common, Participations(tails)])
        for mu, tail in zip(found, tails.tolist(), strict=True):
            exact = written_out(0.1, [common, Participations(tail)], 0.0)
            assert mu == pytest.approx(exact, rel=1e-8)

    @pytest.mark.parametrize("gap", [1e-12, 1e-4])
    def test_a_trillion_are_quick(self, gap):
        few, many = (
            float(mus_of_few(gap=gap, participations=[Participations(0, 1.0, more, 1000)]))
            for more in (10**9, 10**12)
        )
        assert few <= many * (1 + 1e-8)
        assert many < math.inf


class TestPositionsOfSchedules:
    """All places at once: what a convex solver finds for each."""

    @pytest.mark.parametrize("falling", [False, True])
    def test_equal_a_convex_solver_and_each_other_alone(self, falling):
        rng = np.random.default_rng(3)
        for _ in range(40):
            period = int(rng.integers(1, 7))
            steps = int(rng.integers(1, 4 * period + 1))
            varied = rng.choice([1.0, 0.99, 0.6, 1.05], size=steps)
            shape = np.linspace(1.0, 0.1, steps) if falling else rng.uniform(0.05, 1.0, steps)
            noise = np.sqrt(shape) if falling else rng.uniform(0.05, 1.0, steps)
            run = {
                "contraction": np.append(np.ones(steps) if falling else varied, 1.0),
                "sensitivity": np.append(shape, 0.0),
                "noise": np.append(noise, rng.uniform(0.05, 2.0)),
            }
            patterns = [np.arange(place, steps, period) for place in range(min(period, steps))]
            mus = pattern_mus(**run, patterns=patterns, period=period)
            # Written as a schedule of its own, no more is rounded.
            assert mus == pytest.approx(pattern_mus(**run, patterns=patterns), rel=1e-13)
            for mu, pattern in zip(mus, patterns, strict=True):
                shifts = np.zeros(steps + 1)
                shifts[pattern] = run["sensitivity"][pattern]
                exact = gdp_of_linear_shifts(
                    contractions=run["contraction"], shifts=shifts, noise_stds=run["noise"]
                )
                assert exact * (1 - 1e-12) <= mu <= exact * (1 + 1e-9)


class TestLeastEnergies:
    @pytest.mark.parametrize("seed", range(40))
    def test_each_row_is_the_optimum_of_its_own_problem(self, seed):
        rng = np.random.default_rng(seed)
        steps = int(rng.integers(1, 14))
        contraction = rng.uniform(0.6, 1.5, steps)
        noise = rng.uniform(0.5, 2.0, steps) * (rng.random(steps) < 0.9)
        noise[-1] = rng.uniform(0.1, 1.0)
        arriving = (rng.random((6, steps)) < 0.4) * rng.uniform(0.1, 1.0, (6, steps))
        diameter = rng.uniform(0.1, 2.0)
        start = min(float(rng.choice([0.0, rng.uniform()])), diameter)
        units = np.append(np.cumprod(contraction[:0:-1])[::-1], 1.0)  # of the last step
        found = least_energies(
            units * arriving,
            np.broadcast_to((units * noise) ** 2, arriving.shape),
            np.full(6, start * contraction[0] * units[0]),
            entries=np.broadcast_to(diameter * contraction * units, arriving.shape),
        )
        for row, arrivals in enumerate(arriving):
            alone = {"contraction": contraction, "sensitivity": arrivals, "noise": noise}
            free = optimal_shifts(**alone, start=start).mu
            held = optimal_shifts(**alone, start=start, diameter=diameter).mu
            capped = min(found.from_start[row], found.from_cap[row])
            for energy, mu in (
                (found.from_start[row], free),
                (capped, held),
                (found.composed[row], optimal_shifts(**alone).mu),
            ):
                assert np.sqrt(energy) == pytest.approx(mu, rel=1e-11, abs=1e-140)

    def test_what_meets_no_noise_costs_everything(self):
        masses = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        found = least_energies(masses, np.zeros((3, 2)), np.zeros(3))
        assert found.composed.tolist() == [np.inf, np.inf, 0.0]
        later = least_energies(masses[:1], np.array([[0.0, 4.0]]), np.zeros(1))
        assert later.composed[0] == pytest.approx(0.25)

    def test_composition_may_come_before_any_column(self):
        # 10 arrives first; hidden at once for 3, or by later noise for a hundred.
        masses, variances = np.array([[10.0, 1.0]]), np.array([[0.5, 0.5]])
        free = least_energies(masses, variances, np.zeros(1)).composed[0]
        assert free == pytest.approx(121.0)
        composed = least_energies(masses, variances, np.zeros(1), composed=np.array([[0.5, 3.5]]))
        assert composed.composed[0] == pytest.approx(3.5 + 2.0)
