"""Sums of log-normal variables: never below quadrature, and close."""

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate.bounds.shuffling.lognormal_sum import call_function


def exact(weights, spreads, thresholds):
    """E (X - K)_+ of two terms: the second in closed form, the first by a fine midpoint rule."""
    at = np.linspace(-9.0, 9.0, 40_001)
    z = (at[1:] + at[:-1]) / 2
    masses = np.diff(ndtr(at))
    first = weights[0] * np.exp(spreads[0] * z - spreads[0] ** 2 / 2)
    result = []
    for threshold in thresholds:
        left = threshold - first
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.log(weights[1] / left) / spreads[1]
        call = weights[1] * ndtr(away + spreads[1] / 2) - left * ndtr(away - spreads[1] / 2)
        result.append(masses @ np.where(left > 0.0, call, weights[1] - left))
    return np.array(result)


@pytest.mark.parametrize(
    "weights, spreads",
    [((0.01, 0.02), (1.0, 0.5)), ((0.3, 0.2), (0.2, 0.1)), ((0.001, 0.05), (1.5, 0.3))],
)
def test_is_above_quadrature_and_close(weights, spreads):
    thresholds = np.array([-0.3, 0.0, 0.003, 0.0151, 0.02, 0.05, 0.1003, 0.3, 0.61, 0.9])
    truth = exact(weights, spreads, thresholds)
    found = call_function(np.array(weights), np.array(spreads), end=1.0, cells=2000)(thresholds)
    assert np.all(found >= truth * (1 - 1e-7))
    assert np.all(found <= truth * 1.02 + 1e-6)


def test_beyond_the_grid_nothing_is_forgotten():
    weights, spreads = np.array([0.3, 0.4]), np.array([1.0, 0.8])
    thresholds = np.array([0.0, 0.1, 0.4, 0.5, 3.0, 50.0])
    truth = exact(weights, spreads, thresholds)
    found = call_function(weights, spreads, end=0.5, cells=500)(thresholds)
    assert np.all(found >= truth * (1 - 1e-7))


def test_of_nothing_it_is_nothing():
    found = call_function(np.zeros(3), np.ones(3), end=1.0, cells=10)
    assert found(np.array([-0.5, 0.0, 2.0])) == pytest.approx([0.5, 0.0, 0.0])
