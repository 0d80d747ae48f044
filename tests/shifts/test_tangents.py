"""Concave moduli: near the optimum, and never above the published optimisation?"""

import math

import numpy as np
import pytest

from lastiterate.shifts.optimal_shifts import Branch, Moduli, concave_shifts, optimal_shifts
from tests.reference.chien_li import gdp_hoelder, gdp_smooth
from tests.reference.shifts import gdp_of_concave_shifts_bracket
from tests.slow import slow


def chien_li_moduli(T, eta, K, n, L, order=1.0):
    """min(z + eta L z^order + 2 eta K/n, z + 2 eta K), every step."""
    ones = np.ones(T)
    own = 2 * eta * K / n * ones
    return Moduli(
        (
            Branch(ones, eta * L * ones, own, order),
            Branch(ones, 0 * ones, 2 * eta * K * ones),
        )
    )


def settings(count, seed):
    rng = np.random.default_rng(seed)
    yield {"T": 60, "eta": 0.1, "K": 2.0, "n": 5, "D": 1.0, "L": 1.0}
    for _ in range(count - 1):
        yield {
            "T": int(rng.integers(2, 40)),
            "eta": 10 ** rng.uniform(-2, 0),
            "K": 10 ** rng.uniform(-1, 1),
            "n": int(rng.integers(1, 50)),
            "D": 10 ** rng.uniform(-1, 1),
            "L": 10 ** rng.uniform(-1, 1),
        }


class TestAgainstChienLi:
    """Their own programmes, solved by scipy; noise 1 throughout."""

    def test_smooth_non_convex_is_never_above(self):
        for setting in settings(50, seed=1):
            theirs = gdp_smooth(
                **{k: v for k, v in setting.items() if k != "L"},
                sigma=1.0,
                c=1 + setting["eta"] * setting["L"],
            )
            moduli = chien_li_moduli(*(setting[key] for key in ("T", "eta", "K", "n", "L")))
            ours = concave_shifts(moduli, np.ones(setting["T"]), diameter=setting["D"]).mu
            assert ours <= theirs * (1 + 1e-9)

    def test_strongly_convex_is_strictly_below(self):
        common = {"eta": 0.1, "K": 2.0, "n": 5, "D": 1.0}
        arriving = np.full(60, 2 * 0.1 * 2.0 / 5)
        theirs = gdp_smooth(T=60, **common, sigma=1.0, c=0.9)
        ours = optimal_shifts(contraction=0.9, sensitivity=arriving, noise=1.0, diameter=1.0).mu
        assert (round(ours, 4), round(theirs, 4)) == (0.3481, 0.3645)

    @pytest.mark.parametrize("order", [slow(0.3), 0.5, slow(0.8)])
    def test_hoelder_is_never_above(self, order):
        for setting in settings(6, seed=2):
            setting["T"] = min(setting["T"], 15)
            theirs = gdp_hoelder(**setting, sigma=1.0, lam=order)
            moduli = chien_li_moduli(
                *(setting[key] for key in ("T", "eta", "K", "n", "L")), order=order
            )
            ours = concave_shifts(moduli, np.ones(setting["T"]), diameter=setting["D"]).mu
            assert ours <= theirs * (1 + 1e-9)


class TestOptimality:
    @pytest.mark.parametrize("order", [1.0, 0.5])
    def test_near_a_dynamic_programme(self, order):
        for setting in settings(12, seed=3):
            setting["T"] = min(setting["T"], 20)
            T, eta, K, n, L = (setting[key] for key in ("T", "eta", "K", "n", "L"))
            moduli = chien_li_moduli(T, eta, K, n, L, order)
            ours = concave_shifts(moduli, np.ones(T), diameter=setting["D"]).mu

            def w(z, eta=eta, L=L, K=K, n=n):
                return np.minimum(z + eta * L * z**order + 2 * eta * K / n, z + 2 * eta * K)

            lower, upper = gdp_of_concave_shifts_bracket(
                moduli=[w] * T, noise_stds=np.ones(T), diameter=setting["D"], points=600
            )
            assert lower <= ours * (1 + 1e-9)
            assert ours <= upper * (1 + 1e-6)


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
