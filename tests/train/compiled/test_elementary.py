"""Compiled exponentials and logarithms are those of multiprecision arithmetic."""

import mpmath
import numpy as np
import pytest

from lastiterate.train.compiled import loops as elementary

RNG = np.random.default_rng(0)


def relative_errors(function, exact, xs):
    return [abs(function(x) / exact(mpmath.mpf(x)) - 1) for x in xs]


@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1e-3, 0.35, 1.0, 30.0, 700.0])
def test_exponentials(scale):
    xs = [float(x) for x in scale * RNG.uniform(-1, 1, 300)] + [scale, -scale, 0.0]
    assert max(relative_errors(elementary.exp, mpmath.exp, xs)) <= 4e-16


@pytest.mark.parametrize("x", [-700.1, -1e4, -1e300, -np.inf])
def test_of_very_small_numbers_nothing_is_left(x):
    assert elementary.exp(x) == 0.0


@pytest.mark.parametrize("scale", [1e-14, 1e-6, 0.2, 0.5, 3.0, 100.0, 700.0])
def test_logarithms(scale):
    xs = [float(np.exp(x)) for x in scale * RNG.uniform(-1, 1, 300)]
    xs = [x for x in xs if x != 1.0]
    assert max(relative_errors(elementary.log, mpmath.log, xs)) <= 4e-16
    rough = [abs(elementary.rough_log(x) - mpmath.log(x)) for x in xs]
    assert max(rough) <= 2e-6


@pytest.mark.parametrize("x", [2.0**-1022, 2.0**1023, 0.5**0.5, 2**0.5, np.nextafter(1, 0)])
def test_logarithms_at_powers_and_roots(x):
    assert relative_errors(elementary.log, mpmath.log, [x])[0] <= 4e-16


def test_one_has_logarithm_zero():
    assert elementary.log(1.0) == 0.0


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, 1e-310, np.inf, -np.inf, np.nan])
def test_what_has_no_logarithm_is_nan(x):
    assert np.isnan(elementary.log(x))
    assert np.isnan(elementary.rough_log(x))


def test_nan_stays():
    assert np.isnan(elementary.exp(np.nan))
