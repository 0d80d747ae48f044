"""A guarantee beside Gaussian ones of which chance decides: against numerical convolution."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from lastiterate.profile import GaussianMixtureProfile, PureProfile
from lastiterate.profile.compose import (
    MixtureCompositionProfile,
    compose_with_gaussian,
    compose_with_mixture,
)
from lastiterate.profile.curve import ChordCurve

EPSILONS = [0.0, 0.2, 0.7, 1.5, 3.0, 5.0]


def by_convolution(curve, weights, mus, epsilon):
    """E curve(epsilon - l), l the loss of a Gaussian mechanism, and chance over its mu known."""
    z = np.linspace(-12.0, 12.0, 48_001)
    mass = norm.pdf(z) * (z[1] - z[0])
    total = 0.0
    for weight, mu in zip(weights, mus, strict=True):
        left = epsilon - (mu * mu / 2 + mu * z)
        known = curve(np.abs(left))
        both = np.where(left >= 0, known, 1 - np.exp(-np.abs(left)) * (1 - known))
        total += weight * float(mass @ both)
    return total


def of_gaussians(weights, mus):
    def curve(epsilons):
        return sum(
            w * (norm.sf(epsilons / m - m / 2) - np.exp(epsilons) * norm.sf(epsilons / m + m / 2))
            for w, m in zip(weights, mus, strict=True)
        )

    return curve


def of_pure(limit):
    p = 1 / (1 + math.exp(-limit))
    return lambda epsilons: np.maximum(p - np.exp(epsilons) * (1 - p), 0.0)


@pytest.mark.parametrize(
    "profile, curve",
    [
        (PureProfile(0.8), of_pure(0.8)),
        (compose_with_gaussian(PureProfile(0.3), 0.4), None),
    ],
)
@pytest.mark.parametrize("mus", [[0.0, 0.6], [0.3, 1.4], [0.05, 0.5, 2.0]])
def test_is_the_convolution(profile, curve, mus):
    weights = np.full(len(mus), 1.0 / len(mus))
    found = compose_with_mixture(profile, GaussianMixtureProfile(weights, mus))
    assert isinstance(found, MixtureCompositionProfile)
    told = mus
    if curve is None:
        curve, told = of_pure(0.3), np.hypot(mus, 0.4)
    for epsilon in EPSILONS:
        exact = by_convolution(curve, weights, told, epsilon)
        assert exact * (1 - 1e-6) - 1e-12 <= found.delta(epsilon) <= exact * 1.05 + 1e-9


def test_mixtures_join_in_squares():
    one, other = ([0.3, 0.7], [0.2, 0.9]), ([0.6, 0.4], [0.0, 0.5])
    found = compose_with_mixture(GaussianMixtureProfile(*one), GaussianMixtureProfile(*other))
    for epsilon in EPSILONS:
        exact = by_convolution(of_gaussians(*one), [0.4], [0.5], epsilon)
        exact += 0.6 * float(of_gaussians(*one)(np.array(epsilon)))
        assert exact * (1 - 1e-6) <= found.delta(epsilon) <= exact * (1 + 1e-6)


def test_of_what_promises_nothing_nothing_is_left():
    lost = GaussianMixtureProfile([1.0], [math.inf])
    assert compose_with_mixture(PureProfile(1.0), lost).epsilon(1e-5) == math.inf
    kept = compose_with_mixture(PureProfile(1.0), GaussianMixtureProfile([1.0], [0.3]))
    assert kept.gdp() >= 0.3
    assert kept.renyi(2.0) >= 0.09
    assert kept.renyi(math.inf) == math.inf


class TestChords:
    def test_where_the_exponential_overflows(self):
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
