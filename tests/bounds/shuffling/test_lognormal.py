"""Call functions of sums of log-normal variables: never below quadrature, and close."""

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate.bounds.shuffling.lognormal import DifferenceCalls, call_function
from lastiterate.errors import InvalidParameter

WEIGHTS, SPREADS = np.array([0.05, 0.2]), np.array([1.0, 0.4])
KAPPAS = np.array([0.5, 0.9, 1.5, 2.5])


def normal_cells(end, count):
    """Midpoints of cells of a normal variable, and their probabilities."""
    at = np.linspace(-9.0, end, count)
    return (at[1:] + at[:-1]) / 2, np.diff(ndtr(at))


def exact(weights, spreads, thresholds):
    """E (X - K)_+ of two terms: the second in closed form, the first by a fine midpoint rule."""
    z, masses = normal_cells(9.0, 40_001)
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
    terms = np.array(weights), np.array(spreads)
    found = call_function(*terms, groups=np.array([7, 3]), end=1.0, cells=2000)(thresholds)
    assert np.all(found >= truth * (1 - 1e-7))
    assert np.all(found <= truth * 1.02 + 1e-6)


def test_mass_beyond_the_grid_counts():
    weights, spreads = np.array([0.3, 0.4]), np.array([1.0, 0.8])
    thresholds = np.array([0.0, 0.1, 0.4, 0.5, 3.0, 50.0])
    truth = exact(weights, spreads, thresholds)
    found = call_function(weights, spreads, groups=np.arange(2), end=0.5, cells=500)(thresholds)
    assert np.all(found >= truth * (1 - 1e-7))


def test_of_no_terms_it_is_zero():
    found = call_function(np.zeros(3), np.ones(3), groups=np.arange(3), end=1.0, cells=10)
    assert found(np.array([-0.5, 0.0, 2.0])) == pytest.approx([0.5, 0.0, 0.0])


def difference(kappa, threshold, weights=WEIGHTS, spreads=SPREADS, group=None, positive=True):
    """By a fine midpoint rule over both normal variables; `group` shares that of the first term."""
    z, masses = normal_cells(9.0, 1_501)
    terms = [
        p * (positive * np.exp(s * z - s * s / 2) - kappa * np.exp(-s * z - s * s / 2))
        for p, s in zip(weights, spreads, strict=True)
    ]
    first, second = terms[0] + (terms[1] if group else 0.0), terms[-1]
    over = np.maximum(first[:, None] + second - threshold, 0.0)
    return float(masses @ over @ masses)


def calls_of(weights=WEIGHTS, spreads=SPREADS, *, kappas=KAPPAS, end=0.8, cells=800, **others):
    ends = np.full(len(kappas), end)
    return DifferenceCalls(weights, spreads, kappas=kappas, ends=ends, cells=cells, **others)


@pytest.mark.parametrize("kappa", [0.5, 0.7, 1.2, 2.5])
def test_differences_are_above_quadrature_and_close_between_kappas_too(kappa):
    calls = calls_of()
    for threshold in (-3.0, -0.4, -0.1, 0.0, 0.1, 0.4, 0.75):
        truth = difference(kappa, threshold)
        found = float(calls(np.array([kappa]), np.array([threshold]))[0])
        assert truth * (1 - 1e-4) <= found <= truth * 1.1 + 2e-5


@pytest.mark.parametrize("threshold", [-1.0, -0.3, -0.2, -0.05])
def test_subtracted_terms_alone(threshold):
    one = np.ones(1)
    found = float(calls_of(kappas=one, end=0.0, positive=False)(one, np.array([threshold]))[0])
    truth = difference(1.0, threshold, positive=False)
    assert truth * (1 - 1e-4) <= found <= truth * 1.02 + 2e-5


def test_mass_beyond_the_grid_of_differences_counts():
    calls = calls_of(end=0.1, cells=100)
    for threshold in (0.5, 2.0, 20.0):
        assert float(calls(np.ones(1), np.array([threshold]))[0]) >= difference(1.0, threshold)


def test_kappas_must_increase():
    with pytest.raises(InvalidParameter, match="kappas"):
        calls_of(kappas=KAPPAS[::-1], end=1.0, cells=10)


@pytest.mark.parametrize("spreads", [[0.3, 0.9, 1.6], [0.5, 0.5, 0.5], [1e-3, 0.2, 3.0]])
def test_terms_of_a_group_share_their_variable(spreads):
    """Never below quadrature of one variable, and close."""
    weights, spreads = np.array([0.2, 0.1, 0.05]), np.array(spreads)
    z, masses = normal_cells(12.0, 100_001)
    sums = np.exp(np.multiply.outer(z, spreads) - spreads**2 / 2) @ weights
    thresholds = np.array([-0.1, 0.0, 0.05, 0.3, 0.8, 0.99])
    exact = np.array([masses @ np.maximum(sums - threshold, 0.0) for threshold in thresholds])
    group = np.zeros(3, dtype=np.int64)
    found = call_function(weights, spreads, groups=group, end=1.0, cells=4000)(thresholds)
    assert np.all(found >= exact - 1e-9)
    assert np.all(found <= 1.001 * exact + 1e-5)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("kappa", [0.5, 0.8, 2.5])
def test_differences_of_terms_that_share_their_normal_variable(kappa, positive):
    terms = np.array([0.05, 0.2, 0.1]), np.array([1.0, 0.4, 0.7])
    kappas = KAPPAS if positive else np.array([kappa])
    calls = calls_of(*terms, kappas=kappas, positive=positive, groups=np.array([3, 3, 1]))
    for threshold in (-2.0, -0.3, -0.1, 0.0, 0.1, 0.5):
        truth = difference(kappa, threshold, *terms, group=True, positive=positive)
        found = float(calls(np.array([kappa]), np.array([threshold]))[0])
        assert truth * (1 - 1e-4) <= found <= truth * 1.1 + 3e-5
