"""The noise of objective perturbation, a rival in the benchmarks, is what its proof asks for."""

import math
from pathlib import Path

import numpy as np
import pytest

from lastiterate.profile import GaussianProfile

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rival(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import objective_perturbation

    return objective_perturbation


@pytest.mark.parametrize("mu, determinants", [(0.5, 0.0), (0.5, 0.1), (1.5, 0.02)])
def test_delta_is_the_expectation(rival, mu, determinants):
    lengths = np.hypot(*np.random.default_rng(0).normal(size=(2, 400_000)))
    losses = determinants + mu * mu / 2 + mu * lengths
    values = np.maximum(0.0, -np.expm1(1.0 - losses))
    error = 4 * values.std() / math.sqrt(values.size)
    assert rival.delta_of(1.0, mu, determinants) == pytest.approx(values.mean(), abs=error)


@pytest.mark.parametrize("mu", [0.3, 0.5, 2.0])
def test_no_less_than_for_linear_losses(rival, mu):
    """With these the minimum is that of a Gaussian mechanism."""
    for epsilon in (0.5, 1.0, 4.0):
        assert rival.delta_of(epsilon, mu, 0.0) >= GaussianProfile(mu).delta(epsilon)


def test_noise_meets_the_target(rival):
    penalty, clip = 8.0, 0.25
    sigma = rival.noise_std(1.0, penalty, clip)
    determinants = math.log1p(0.25 * 0.75 * rival.RADIUS**2 / penalty)
    found = rival.delta_of(1.0, 2 * clip * rival.RADIUS / sigma, determinants)
    assert found == pytest.approx(1e-5, rel=1e-3)
    assert rival.noise_std(0.01, 1.0, 1.0) == math.inf
