"""Arithmetic whose errors have a known sign."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate._numerics.rounding import (
    at_least,
    at_most,
    distance_of_product_to_one,
    down,
    prefix_sums,
    roundings,
    suffix_products,
    suffix_sums,
    two_minus_product,
    two_product,
    ulps,
    up,
)

positive = st.floats(1e-100, 1e100)


class TestDirected:
    @given(st.floats(0, 1e300), st.integers(1, 100))
    def test_moves_the_right_way(self, value, ulps):
        assert at_most(value, ulps=ulps) <= value <= at_least(value, ulps=ulps)

    def test_subnormals_become_normal_on_the_way_up_and_zero_on_the_way_down(self):
        assert at_least(5e-324, ulps=1) > 1e-308
        assert at_most(5e-324, ulps=1) == 0.0

    @given(st.floats(1e-290, 1e290), st.integers(1, 10**6))
    def test_shares_move_numbers_and_arrays_alike(self, value, count):
        amount = ulps(count)
        assert down(value, amount) < value < up(value, amount)
        assert up(np.array([value]), amount)[0] == up(value, amount)
        assert up(value, amount) <= at_least(value, ulps=count)
        assert down(value, amount) == at_most(value, ulps=count)

    @pytest.mark.parametrize("move", [at_least, at_most])
    def test_refuses_nan(self, move):
        with pytest.raises(FloatingPointError):
            move(math.nan, ulps=1)

    def test_keeps_zero_and_infinity(self):
        assert (at_least(0.0, ulps=9), at_least(math.inf, ulps=9)) == (0.0, math.inf)


class TestExact:
    @given(positive, positive)
    def test_a_product_and_its_error(self, x, y):
        product, error = two_product(np.array([x]), np.array([y]))
        with mp.workdps(80):
            assert mpf(float(product[0])) + mpf(float(error[0])) == mpf(x) * mpf(y)

    @given(st.floats(1e-3, 1e3), st.integers(-5, 5), st.one_of(st.just(2.0), st.floats(0, 5)))
    def test_two_minus_a_product_is_rounded_down_with_the_right_sign(self, x, ulps, target):
        y = target / x
        for _ in range(abs(ulps)):
            y = math.nextafter(y, math.inf if ulps > 0 else 0.0)
        found = float(two_minus_product(np.array([x]), np.array([y]))[0])
        with mp.workdps(80):
            exact = 2 - mpf(x) * mpf(y)
            assert mpf(found) <= exact
            assert (found >= 0) == (exact >= 0)
            assert mpf(found) >= exact - abs(exact) * mpf(2) ** -49

    def test_huge_factors_do_not_become_nan(self):
        assert two_minus_product(np.array([1e305]), np.array([1.0]))[0] < -1e304

    def test_the_sign_is_right_far_from_one_too(self):
        x, y = 3.257567177287135e-303, 6.139551054985694e302
        assert two_minus_product(np.array([x]), np.array([y]))[0] < 0.0

    @given(st.floats(1e-3, 1e3), st.integers(-3, 3))
    def test_distance_to_one_is_rounded_up(self, x, ulps):
        y = 1 / x
        for _ in range(abs(ulps)):
            y = math.nextafter(y, math.inf if ulps > 0 else 0.0)
        found = float(distance_of_product_to_one(np.array([x]), np.array([y]))[0])
        with mp.workdps(80):
            exact = abs(1 - mpf(x) * mpf(y))
            assert exact <= mpf(found) <= exact * (1 + mpf(2) ** -49)


class TestScans:
    @settings(max_examples=40)
    @given(st.integers(1, 3000), st.integers(0, 10**6))
    def test_are_what_they_say(self, length, seed):
        terms = np.random.default_rng(seed).random(length) + 0.5
        tolerance = roundings(length) * 2.0**-52
        assert suffix_sums(terms) == pytest.approx(np.cumsum(terms[::-1])[::-1], rel=1e-12)
        assert prefix_sums(terms)[-1] == pytest.approx(math.fsum(terms), rel=tolerance)
        products = suffix_products(terms / terms.mean())
        assert products[-1] == 1.0
        logs = np.append(np.cumsum(np.log(terms / terms.mean())[:0:-1])[::-1], 0.0)
        assert np.log(products) == pytest.approx(logs, abs=1e-10)

    def test_a_million_terms_lose_few_digits(self):
        terms = np.random.default_rng(0).random(10**6)
        exact = math.fsum(terms)
        assert abs(suffix_sums(terms)[0] - exact) <= roundings(terms.size) * 2.0**-52 * exact
