"""Curves that are known along a price: single deltas, where the arithmetic fails, too."""

import math

import pytest

from lastiterate.profile.curve import ParametricProfile


class Known(ParametricProfile):
    """(epsilon, delta) at a price of 0, and from there on more of the one and less of the other."""

    _knots, _largest_multiplier, _tolerance, _lost = 4, 30.0, 1e-6, 0.0

    def __init__(self, epsilon, delta):
        self._first = epsilon, delta

    def _at(self, price):
        epsilon, delta = self._first
        return epsilon + price, delta * math.exp(-price)

    def renyi(self, order):
        return math.inf

    def gdp(self):
        return math.inf


@pytest.mark.parametrize("first", [math.nan, math.inf, 650.0])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 620.0, 700.0, math.inf])
def test_nothing_is_promised_where_epsilon_is_none_or_huge(first, epsilon):
    assert Known(first, 0.1).delta(epsilon) == 1.0


def test_what_is_no_delta_promises_nothing():
    assert Known(0.0, math.nan).delta(1.0) == 1.0
    assert Known(2.0, math.nan).delta(1.0) == 1.0


def test_at_the_price_that_it_allows():
    assert Known(0.1, 0.2).delta(1.1) == pytest.approx(0.2 * math.exp(-1.0), rel=1e-5)
    assert Known(0.1, 0.2).delta(1.1) >= 0.2 * math.exp(-1.0)


def test_below_the_first_by_what_the_exponential_grows():
    expected = 0.2 + math.expm1(0.1) - math.expm1(0.05)
    assert Known(0.1, 0.2).delta(0.05) == pytest.approx(expected, rel=1e-9)


def test_infinity_is_the_end_of_the_curve():
    assert Known(0.1, 0.2).delta(math.inf) == Known(0.1, 0.2).delta(600.0) < 1e-10
