"""Optimal shifts: are they feasible, optimal, and safe at the ends of the number line?"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.errors import InvalidParameter
from lastiterate.shifts import minorant
from lastiterate.shifts import optimal_shifts as searched
from lastiterate.shifts.optimal_shifts import (
    Branch,
    Moduli,
    concave_shifts,
    optimal_shifts,
    pattern_mus,
)
from tests.reference.chien_li import gdp_hoelder, gdp_smooth
from tests.reference.quadratics import gdp_of_autoregression
from tests.reference.shifts import (
    gdp_of_concave_shifts_bracket,
    gdp_of_linear_shifts,
    gdp_of_linear_shifts_by_slsqp,
)
from tests.shifts.strategies import engine_arguments, random_schedule
from tests.slow import slow


def schedules(count, longest=40):
    rng = np.random.default_rng(20240229)
    return [random_schedule(rng, longest) for _ in range(count)]


def mu_of(schedule):
    return optimal_shifts(**engine_arguments(schedule)).mu


class TestOptimality:
    """mu is what a general-purpose solver finds, and never below it."""

    @pytest.mark.parametrize("one_chord_first", [False, True])
    def test_equals_a_convex_solver(self, one_chord_first, monkeypatch):
        if one_chord_first:
            monkeypatch.setattr(minorant, "_LEAST_CHORD_STEPS", 2)
            monkeypatch.setattr(minorant, "_CHORD_PROBES", 2)
        for schedule in schedules(150):
            exact = gdp_of_linear_shifts(**schedule)
            assert exact * (1 - 1e-12) <= mu_of(schedule) <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("count", [12, slow(60)])
    def test_equals_sequential_quadratic_programming(self, count):
        compared = 0
        for schedule in schedules(count):
            found = gdp_of_linear_shifts_by_slsqp(**schedule)
            mu = mu_of(schedule)
            assert found * (1 - 1e-6) <= mu <= found * (1 + 1e-6)
            compared += mu > 0
        assert compared > 0.6 * count

    @pytest.mark.parametrize("low, high", [(1.0, 1.3), (0.2, 0.5), (0.7, 1.3)])
    def test_in_pieces_equals_one_piece(self, monkeypatch, low, high):
        rng = np.random.default_rng(3)
        steps = {
            "contraction": rng.uniform(low, high, 400),
            "sensitivity": rng.random(400) * (rng.random(400) < 0.3),
            "noise": rng.uniform(0.3, 3.0, 400),
        }
        whole = optimal_shifts(**steps).mu
        monkeypatch.setattr(searched, "LEAST_UNIT", 1e-25)
        monkeypatch.setattr(searched, "_NEGLIGIBLE_CONTRACTION", 1e-15)
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
        assert mu_of(schedule) >= exact

    def test_the_plan_is_feasible_and_costs_mu(self):
        for schedule in schedules(150):
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

    @pytest.mark.parametrize(
        "contraction, sensitivity, noise, mu",
        [
            (1.0, [1.0, 1.0], [1.0, 0.0], math.inf),  # the last cannot be hidden
            ([1.0, 0.5, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0], (1.0 * 0.5 + 1.0) / 2.0),
            (3.0, [1.0, 0.0], [1.0, 0.0], 1.0),  # idle, after the last shift
        ],
    )
    def test_steps_without_noise_keep_the_distance(self, contraction, sensitivity, noise, mu):
        plan = optimal_shifts(contraction=contraction, sensitivity=sensitivity, noise=noise)
        assert plan.mu == pytest.approx(mu, rel=1e-13)


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
        noise = [1e-200, 1e-90, 1.0]
        plan = optimal_shifts(contraction=1.0, sensitivity=[1.0, 0.0, 0.0], noise=noise)
        assert plan.mu == pytest.approx(1.0, rel=1e-12)

    def test_contractions_to_nothing(self):
        # A product of contractions that underflows on the way.
        c, s = [1.0, 1e-300, 1e-300, 0.9, 0.9], [1.0, 0, 1.0, 0, 1.0]
        plan = optimal_shifts(contraction=c, sensitivity=s, noise=1.0)
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
        for _ in range(150):
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


def ours(setting, order=1.0):
    """mu for min(z + eta L z^order + 2 eta K/n, z + 2 eta K) and noise 1, every step."""
    T, eta, K, n, L = (setting[key] for key in ("T", "eta", "K", "n", "L"))
    ones = np.ones(T)
    first = Branch(ones, eta * L * ones, 2 * eta * K / n * ones, order)
    moduli = Moduli((first, Branch(ones, 0 * ones, 2 * eta * K * ones)))
    return concave_shifts(moduli, ones, diameter=setting["D"]).mu


def settings(count, seed, longest=40):
    rng = np.random.default_rng(seed)
    yield {"T": min(longest, 60), "eta": 0.1, "K": 2.0, "n": 5, "D": 1.0, "L": 1.0}
    for _ in range(count - 1):
        yield {
            "T": min(longest, int(rng.integers(2, 40))), "eta": 10 ** rng.uniform(-2, 0),
            "K": 10 ** rng.uniform(-1, 1), "n": int(rng.integers(1, 50)),
            "D": 10 ** rng.uniform(-1, 1), "L": 10 ** rng.uniform(-1, 1),
        }  # fmt: skip


class TestConcaveModuli:
    """Never above the published programmes, solved by scipy, and near the optimum."""

    def test_smooth_non_convex_is_never_above(self):
        for setting in settings(30, seed=1, longest=60):
            theirs = gdp_smooth(
                **{k: v for k, v in setting.items() if k != "L"},
                sigma=1.0,
                c=1 + setting["eta"] * setting["L"],
            )
            assert ours(setting) <= theirs * (1 + 1e-9)

    def test_strongly_convex_is_strictly_below(self):
        theirs = gdp_smooth(T=60, eta=0.1, K=2.0, n=5, D=1.0, sigma=1.0, c=0.9)
        arriving = np.full(60, 2 * 0.1 * 2.0 / 5)
        found = optimal_shifts(contraction=0.9, sensitivity=arriving, noise=1.0, diameter=1.0).mu
        assert (round(found, 4), round(theirs, 4)) == (0.3481, 0.3645)

    @pytest.mark.parametrize("order", [slow(0.3), 0.5, slow(0.8)])
    def test_hoelder_is_never_above(self, order):
        for setting in settings(4, seed=2, longest=12):
            assert ours(setting, order) <= gdp_hoelder(**setting, sigma=1.0, lam=order) * (1 + 1e-9)

    @pytest.mark.parametrize("order", [1.0, 0.5])
    def test_near_a_dynamic_programme(self, order):
        for setting in settings(8, seed=3, longest=20):
            T, eta, K, n, L = (setting[key] for key in ("T", "eta", "K", "n", "L"))

            def w(z, eta=eta, L=L, K=K, n=n):
                return np.minimum(z + eta * L * z**order + 2 * eta * K / n, z + 2 * eta * K)

            lower, upper = gdp_of_concave_shifts_bracket(
                moduli=[w] * T, noise_stds=np.ones(T), diameter=setting["D"], points=600
            )
            found = ours(setting, order)
            assert lower <= found * (1 + 1e-9)
            assert found <= upper * (1 + 1e-6)


class TestTangents:
    @pytest.mark.parametrize("order", [1.0, 0.9, 0.5, 0.1])
    def test_lie_above_the_modulus(self, order):
        rng = np.random.default_rng(0)
        ones = np.ones(50)
        moduli = Moduli(
            (
                Branch(ones, rng.random(50), rng.random(50), order),
                Branch(0.5 * ones, rng.random(50), rng.random(50)),
                Branch(ones, 0 * ones, 2 * rng.random(50)),
            )
        )
        for _ in range(200):
            slope, offset = moduli.tangent(10.0 ** rng.uniform(-20, 3, 50))
            z = 10.0 ** rng.uniform(-20, 3, 50)
            assert np.all(slope * z + offset >= moduli(z))

    def test_a_linear_modulus_is_the_linear_problem(self):
        rng = np.random.default_rng(1)
        c, s, n = rng.uniform(0.8, 1.2, 30), rng.random(30), rng.random(30) + 0.5
        moduli = Moduli((Branch(c, np.zeros(30), s),))
        expected = optimal_shifts(contraction=c, sensitivity=s, noise=n, diameter=2.0).mu
        assert concave_shifts(moduli, n, diameter=2.0).mu == pytest.approx(expected, rel=1e-12)

    def test_no_sensitivity_costs_nothing(self):
        ones = np.ones(5)
        moduli = Moduli((Branch(ones, ones, 0 * ones, 0.5),))
        assert concave_shifts(moduli, ones, diameter=math.inf).mu == 0.0


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
            optimal_shifts(**arguments)
