"""Optimal shifts: are they feasible, optimal, and safe at the ends of the number line?"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.optimal_shifts import optimal_shifts, pattern_mus
from tests.reference.quadratics import gdp_of_autoregression
from tests.reference.shifts import gdp_of_linear_shifts, gdp_of_linear_shifts_by_slsqp
from tests.shifts.strategies import engine_arguments, random_schedule


def schedules(count, longest=40):
    rng = np.random.default_rng(20240229)
    return [random_schedule(rng, longest) for _ in range(count)]


class TestOptimality:
    """mu is what a general-purpose solver finds, and never below it."""

    def test_equals_a_convex_solver_on_300_schedules(self):
        for schedule in schedules(300):
            exact = gdp_of_linear_shifts(**schedule)
            mu = optimal_shifts(**engine_arguments(schedule)).mu
            assert exact * (1 - 1e-12) <= mu <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
    def test_equals_sequential_quadratic_programming(self, count):
        compared = 0
        for schedule in schedules(count):
            found = gdp_of_linear_shifts_by_slsqp(**schedule)
            mu = optimal_shifts(**engine_arguments(schedule)).mu
            assert found * (1 - 1e-6) <= mu <= found * (1 + 1e-6)
            compared += mu > 0
        assert compared > 0.66 * count

    def test_equals_a_convex_solver_where_one_chord_is_tried_first(self, monkeypatch):
        monkeypatch.setattr("lastiterate.shifts.minorant._LEAST_CHORD_STEPS", 2)
        monkeypatch.setattr("lastiterate.shifts.minorant._CHORD_PROBES", 2)
        for schedule in schedules(150):
            exact = gdp_of_linear_shifts(**schedule)
            mu = optimal_shifts(**engine_arguments(schedule)).mu
            assert exact * (1 - 1e-12) <= mu <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("low, high", [(1.0, 1.3), (0.2, 0.5), (0.7, 1.3)])
    def test_in_pieces_equals_one_piece(self, monkeypatch, low, high):
        rng = np.random.default_rng(3)
        steps = {
            "contraction": rng.uniform(low, high, 400),
            "sensitivity": rng.random(400) * (rng.random(400) < 0.3),
            "noise": rng.uniform(0.3, 3.0, 400),
        }
        whole = optimal_shifts(**steps).mu
        monkeypatch.setattr("lastiterate.shifts.optimal_shifts.LEAST_UNIT", 1e-25)
        monkeypatch.setattr("lastiterate.shifts.optimal_shifts._NEGLIGIBLE_CONTRACTION", 1e-15)
        split = optimal_shifts(**steps).mu
        assert whole * (1 - 1e-12) <= split <= whole * (1 + 1e-9)


class TestSoundness:
    """Never below an instance that the plan must cover, and the plan is what it says."""

    @given(st.integers(0, 10**9))
    def test_not_below_the_linear_instance(self, seed):
        schedule = random_schedule(np.random.default_rng(seed))
        schedule |= {"diameter": math.inf, "start": 0.0}
        exact = gdp_of_autoregression(
            contractions=schedule["contractions"],
            shifts=schedule["shifts"],
            noise_stds=schedule["noise_stds"],
        )
        assert optimal_shifts(**engine_arguments(schedule)).mu >= exact

    def test_the_plan_is_feasible_and_costs_mu(self):
        for schedule in schedules(300):
            plan = optimal_shifts(**engine_arguments(schedule))
            c, s, n = (schedule[key] for key in ("contractions", "shifts", "noise_stds"))
            arriving = c * plan.z[:-1] + s
            scale = arriving.max()
            assert np.all(plan.a >= 0.0)
            assert np.all(plan.z >= 0.0)
            assert plan.z[0] == min(schedule["start"], schedule["diameter"])
            assert plan.z[-1] == 0.0
            needed = np.minimum(arriving - plan.a, schedule["diameter"])
            assert np.all(plan.z[1:] >= needed - 1e-11 * scale)
            assert math.sqrt(np.sum((plan.a / n) ** 2)) <= plan.mu * (1 + 1e-12)

    def test_participations_after_the_last_noise_cannot_be_hidden(self):
        plan = optimal_shifts(contraction=1.0, sensitivity=[1.0, 1.0], noise=[1.0, 0.0])
        assert plan.mu == math.inf

    def test_steps_without_noise_keep_the_distance(self):
        plan = optimal_shifts(
            contraction=[1.0, 0.5, 1.0], sensitivity=[1.0, 1.0, 0.0], noise=[0.0, 0.0, 2.0]
        )
        assert plan.mu == pytest.approx((1.0 * 0.5 + 1.0) / 2.0, rel=1e-13)

    def test_idle_steps_without_noise_after_the_last_shift_do_no_harm(self):
        plan = optimal_shifts(contraction=3.0, sensitivity=[1.0, 0.0], noise=[1.0, 0.0])
        assert plan.mu == pytest.approx(1.0, rel=1e-13)


class TestExtremes:
    """Units from c^T far below 1e-300 to far above 1e300."""

    @pytest.mark.parametrize("c", [0.0, 1e-300, 1e-12, 0.3, 0.9, 1 - 1e-9])
    def test_endless_contraction_is_the_geometric_series(self, c):
        steps = 20_000
        mu = optimal_shifts(contraction=c, sensitivity=np.ones(steps), noise=1.0).mu
        growth = (1 - c**steps) / (1 + c**steps) * (1 + c) / (1 - c)
        assert mu == pytest.approx(math.sqrt(growth), rel=1e-9)
        assert mu >= math.sqrt(growth) * (1 - 1e-14)

    def test_steps_that_erase_all_keep_their_own_sensitivity(self):
        plan = optimal_shifts(contraction=[0.5, 0.0, 0.5, 0.0, 0.5], sensitivity=1.0, noise=1.0)
        assert plan.mu == pytest.approx(math.sqrt(1.8))
        assert plan.z[:3] == pytest.approx([0.0, 1.0, 1.0])
        assert np.all(np.isfinite(plan.z))

    @pytest.mark.parametrize("c", [1.0 + 1e-9, 1.01, 1.5, 1e3])
    def test_endless_expansion_covers_every_participation_alone(self, c):
        steps = 20_000
        mu = optimal_shifts(contraction=c, sensitivity=np.ones(steps), noise=1.0).mu
        assert mu == pytest.approx(math.sqrt(steps), rel=1e-9)

    def test_a_single_early_participation_fades_but_is_not_lost(self):
        arriving = np.zeros(10_000)
        arriving[0] = 1.0
        assert 0.0 <= optimal_shifts(contraction=0.5, sensitivity=arriving, noise=1.0).mu < 1e-100

    @pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
    def test_scales_with_sensitivity_over_noise(self, scale):
        shape = {"contraction": [0.9, 1.1, 0.7], "sensitivity": np.array([1.0, 0.5, 0.0])}
        mu = optimal_shifts(**shape, noise=[1.0, 2.0, 0.5]).mu
        shape["sensitivity"] = shape["sensitivity"] * scale
        scaled = optimal_shifts(**shape, noise=np.array([1.0, 2.0, 0.5]) * scale).mu
        assert scaled == pytest.approx(mu, rel=1e-12)

    def test_more_decades_of_noise_than_a_float_squared_holds(self):
        mu = optimal_shifts(
            contraction=1.0, sensitivity=[1.0, 0.0, 0.0], noise=[1e-200, 1e-90, 1.0]
        )
        assert mu.mu == pytest.approx(1.0, rel=1e-12)

    def test_contractions_to_nothing(self):
        # A product of contractions that underflows on the way.
        plan = optimal_shifts(
            contraction=[1.0, 1e-300, 1e-300, 0.9, 0.9],
            sensitivity=[1.0, 0, 1.0, 0, 1.0],
            noise=1.0,
        )
        tail = optimal_shifts(contraction=[0.9] * 3, sensitivity=[1.0, 0, 1.0], noise=1.0)
        assert plan.mu == pytest.approx(tail.mu, rel=1e-12)

    def test_a_sensitivity_dwarfed_by_another_is_not_lost(self):
        plan = optimal_shifts(
            contraction=[1.0, 0.0], sensitivity=[1e308, 1e-16], noise=[1e100, 1e-16]
        )
        assert plan.mu >= 1.0

    @given(
        st.integers(1, 3000),
        st.floats(0.0, 2.0),
        st.floats(-12, 0).map(lambda x: 10**x),
        st.integers(0, 10**6),
    )
    def test_never_above_composition_nor_below_the_linear_instance(self, steps, c, share, seed):
        rng = np.random.default_rng(seed)
        arriving = (rng.random(steps) < share).astype(float)
        mu = optimal_shifts(contraction=c, sensitivity=arriving, noise=1.0).mu
        assert mu <= math.sqrt(arriving.sum()) * (1 + 1e-9)
        if arriving.any():
            # What the last arrival alone leaks.
            tail = steps - 1 - np.flatnonzero(arriving)[-1]
            left = c ** float(tail) if tail * math.log(max(c, 1e-9)) < 300 else math.inf
            variance = sum(c ** (2.0 * j) for j in range(tail + 1)) if left < math.inf else 1.0
            alone = left / math.sqrt(variance) if left < math.inf else 0.0
            assert mu >= alone * (1 - 1e-12)

    def test_capped_with_silent_steps_equals_all_start_times(self):
        rng = np.random.default_rng(5)
        for _ in range(300):
            steps = int(rng.integers(2, 9))
            c, s = rng.uniform(0.5, 1.1, steps), rng.random(steps) * 3
            n = rng.random(steps) * (rng.random(steps) < 0.6)
            n[-1] = 1.0
            diameter = rng.uniform(0.2, 3.0)
            found = optimal_shifts(contraction=c, sensitivity=s, noise=n, diameter=diameter).mu
            starts = [optimal_shifts(contraction=c, sensitivity=s, noise=n).mu]
            starts += [
                optimal_shifts(contraction=c[k:], sensitivity=s[k:], noise=n[k:], start=diameter).mu
                for k in range(1, steps)
            ]
            assert found == pytest.approx(min(starts), rel=1e-9)


class TestMonotonicity:
    @given(st.integers(0, 10**9), st.floats(1.0, 3.0))
    def test_more_noise_less_loss_more_sensitivity_or_room_more(self, seed, factor):
        schedule = random_schedule(np.random.default_rng(seed))
        mu = optimal_shifts(**engine_arguments(schedule)).mu
        for key, sign in [("noise_stds", -1), ("shifts", 1), ("diameter", 1), ("start", 1)]:
            changed = schedule | {key: schedule[key] * factor}
            other = optimal_shifts(**engine_arguments(changed)).mu
            assert sign * (other - mu) >= -1e-9 * mu

    @given(st.integers(0, 10**9), st.floats(0.0, 10.0))
    def test_noise_on_release_never_hurts(self, seed, release):
        schedule = random_schedule(np.random.default_rng(seed))
        arguments = engine_arguments(schedule)
        mu = optimal_shifts(**arguments).mu
        for key, value in [("contraction", 1.0), ("sensitivity", 0.0), ("noise", release)]:
            arguments[key] = np.append(arguments[key], value)
        assert optimal_shifts(**arguments).mu <= mu * (1 + 1e-12)


class TestPatterns:
    @pytest.mark.parametrize("diameter", [math.inf, 1.5])
    @pytest.mark.parametrize("low, scale", [(0.8, 1.0), (0.01, 1.0), (0.8, 1e-200)])
    def test_each_is_the_run_with_only_those_participations(self, diameter, low, scale):
        rng = np.random.default_rng(0)
        c, s, n = rng.uniform(low, 1.1, 90), rng.random(90) * scale, rng.random(90) + 0.1
        patterns = [np.arange(j, 90, 10) for j in range(10)] + [np.array([], dtype=np.intp)]
        mus = pattern_mus(
            contraction=c, sensitivity=s, noise=n, patterns=patterns, diameter=diameter
        )
        for pattern, mu in zip(patterns, mus, strict=True):
            only = np.zeros(90)
            only[pattern] = s[pattern]
            alone = optimal_shifts(contraction=c, sensitivity=only, noise=n, diameter=diameter)
            assert mu == pytest.approx(alone.mu, rel=1e-12)


class TestRefusals:
    @pytest.mark.parametrize(
        "change, says",
        [
            ({"noise": -1.0}, r"noise must be a number in \[0, inf\); got noise=-1.0"),
            ({"noise": [1.0, math.nan]}, r"noise\[1\] must be .* >= 0; got noise\[1\]=nan"),
            ({"contraction": [1.0, math.inf]}, r"contraction\[1\] must be"),
            ({"contraction": [1.0, 1.0, 1.0]}, "must be a number or of length 3"),
            ({"contraction": []}, "contraction must be"),
            ({"contraction": "fast"}, "contraction must be"),
            ({"contraction": [True, False]}, "contraction must be"),
            ({"start": math.inf}, r"start must be a number in \[0, inf\); got start=inf"),
            ({"diameter": 0.0}, r"diameter must be a number in \(0, inf\]; got diameter=0.0"),
            ({"diameter": math.nan}, "diameter must be"),
        ],
    )
    def test_names_the_argument_the_range_and_the_value(self, change, says):
        arguments = {"contraction": 1.0, "sensitivity": [1.0, 1.0], "noise": 1.0} | change
        with pytest.raises(InvalidParameter, match=says):
            li.optimal_shifts(**arguments)
