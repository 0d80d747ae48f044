"""Sums of differences of log-normal variables: never below quadrature, and close."""

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate.bounds.shuffling.lognormal_differences import DifferenceCalls
from lastiterate.errors import InvalidParameter

WEIGHTS, SPREADS = np.array([0.05, 0.2]), np.array([1.0, 0.4])
KAPPAS = np.array([0.5, 0.9, 1.5, 2.5])


def exact(kappa, threshold, positive=True):
    """By a fine midpoint rule over both normal variables."""
    at = np.linspace(-8.5, 8.5, 1501)
    z, masses = (at[1:] + at[:-1]) / 2, np.diff(ndtr(at))
    terms = [
        p * (positive * np.exp(s * z - s * s / 2) - kappa * np.exp(-s * z - s * s / 2))
        for p, s in zip(WEIGHTS, SPREADS, strict=True)
    ]
    over = np.maximum(terms[0][:, None] + terms[1] - threshold, 0.0)
    return float(masses @ over @ masses)


@pytest.mark.parametrize("kappa", [0.5, 0.7, 1.2, 2.5])
def test_is_above_quadrature_and_close_between_kappas_too(kappa):
    calls = DifferenceCalls(WEIGHTS, SPREADS, kappas=KAPPAS, ends=np.full(4, 0.8), cells=800)
    for threshold in (-3.0, -0.4, -0.1, 0.0, 0.1, 0.4, 0.75):
        truth = exact(kappa, threshold)
        found = float(calls(np.array([kappa]), np.array([threshold]))[0])
        assert truth * (1 - 1e-4) <= found <= truth * 1.1 + 2e-5


@pytest.mark.parametrize("threshold", [-1.0, -0.3, -0.2, -0.05])
def test_of_what_is_subtracted_alone(threshold):
    one = np.ones(1)
    calls = DifferenceCalls(
        WEIGHTS, SPREADS, kappas=one, ends=np.zeros(1), cells=800, positive=False
    )
    truth = exact(1.0, threshold, positive=False)
    assert truth * (1 - 1e-4) <= float(calls(one, np.array([threshold]))[0]) <= truth * 1.02 + 2e-5


def test_beyond_the_grid_nothing_is_forgotten():
    calls = DifferenceCalls(WEIGHTS, SPREADS, kappas=KAPPAS, ends=np.full(4, 0.1), cells=100)
    for threshold in (0.5, 2.0, 20.0):
        assert float(calls(np.ones(1), np.array([threshold]))[0]) >= exact(1.0, threshold)


def test_kappas_must_increase():
    with pytest.raises(InvalidParameter, match="kappas"):
        DifferenceCalls(WEIGHTS, SPREADS, kappas=KAPPAS[::-1], ends=np.ones(4), cells=10)
