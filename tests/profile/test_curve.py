"""Curves that are known along a price or by chords: safe where the arithmetic fails, too."""

import math

import numpy as np
import pytest

from lastiterate.profile.curve import ChordCurve, ParametricProfile


class Known(ParametricProfile):
    """(epsilon, delta) at a price of 0, and from there on more of the one and less of the other."""

    _knots, _largest_multiplier, _tolerance, _lost = 4, 30.0, 1e-6, 0.0

    def __init__(self, epsilon, delta):
        self._first = epsilon, delta

    def _point_at(self, price):
        epsilon, delta = self._first
        return epsilon + price, delta * math.exp(-price)

    def renyi(self, order):
        return math.inf

    def gdp(self):
        return math.inf


@pytest.mark.parametrize("first", [math.nan, math.inf, 650.0])
def test_nothing_is_promised_where_epsilon_is_none_or_huge(first):
    for epsilon in (0.0, 1.0, 620.0, 700.0, math.inf):
        assert Known(first, 0.1).delta(epsilon) == 1.0
    assert Known(0.0, math.nan).delta(1.0) == Known(2.0, math.nan).delta(1.0) == 1.0


def test_along_the_price():
    known = Known(0.1, 0.2)
    exact = 0.2 * math.exp(-1.0)
    assert exact <= known.delta(1.1) <= exact * (1 + 1e-5)
    # Below the first by what the exponential grows; infinity is the end of the curve.
    below = 0.2 + math.expm1(0.1) - math.expm1(0.05)
    assert known.delta(0.05) == pytest.approx(below, rel=1e-9)
    assert known.delta(math.inf) == known.delta(600.0) < 1e-10


def test_chords_where_the_exponential_overflows():
    """Far out a chord is wider than any epsilon of which e^epsilon is finite."""

    def slow(epsilons):
        return 0.5 * np.exp(-epsilons / 500.0)  # convex in e^epsilon

    curve = ChordCurve(lambda delta: 1e4 if delta < 1e-9 else 1.0, slow)
    asked = np.array([0.0, 3.0, 699.0, 701.0, 5_000.0, 9_300.0, 9_700.0, 9_999.0, 1e4, 2e4])
    with np.errstate(over="raise", invalid="raise"):
        found, mirrored = curve.deltas(asked), curve.deltas(-asked)
    assert (found >= slow(asked)).all()
    assert found[:5] == pytest.approx(slow(asked[:5]), rel=1.0)
    assert (mirrored >= 1.0 - np.exp(-asked)).all()
