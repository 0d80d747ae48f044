"""The longest converging steps against a search for a common norm, and against closed forms."""

import math

import numpy as np
import pytest

from lastiterate.shifts.momentum.certificate import common_norm
from lastiterate.shifts.momentum.mu import converges, longest_converging_step


def rate(step, curvature, beta, nesterov):
    """The least factor by which steps shrink distances in some quadratic norm."""
    ends = []
    for bend in curvature:
        if nesterov:  # x - step (g + beta (beta buffer + g))
            top = [1 - step * (1 + beta) * bend, -step * beta**2]
        else:
            top = [1 - step * bend, -step * beta]
        ends.append(np.array([top, [bend, beta]]))
    return common_norm((ends[0], ends[1])).rate


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_norm_exists_just_below_and_none_above(seed, nesterov):
    rng = np.random.default_rng(seed)
    beta, top = rng.uniform(0.05, 0.95), rng.uniform(0.1, 5.0)
    curvature = (top * 10 ** rng.uniform(-3, -0.1), top)
    longest = longest_converging_step(curvature, beta, nesterov=nesterov)
    assert rate(0.98 * longest, curvature, beta, nesterov) < 1.0
    assert rate(1.02 * longest, curvature, beta, nesterov) >= 1.0
    assert converges(0.98 * longest, curvature, beta, nesterov=nesterov)
    assert not converges(1.02 * longest, curvature, beta, nesterov=nesterov)


@pytest.mark.parametrize("low, beta", [(0.01, 0.9), (0.001, 0.9), (0.05, 0.7)])
def test_heavy_ball_has_a_closed_form(low, beta):
    high = low + 0.25
    slope = (1 + beta) * (low + high) - 4 * math.sqrt(beta * low * high)
    found = longest_converging_step((low, high), beta)
    assert found == pytest.approx(2 * (1 - beta) ** 2 / slope, rel=1e-9)


def test_plain_steps_are_as_long_as_they_are_stable():
    assert longest_converging_step((0.1, 0.5), 0.0) == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize("curvature", [(0.0, 1.0), (-0.5, 1.0), (math.nan, 1.0)])
def test_nothing_converges_without_strong_convexity(curvature):
    assert longest_converging_step(curvature, 0.9) == 0.0
    assert not converges(1e-3, curvature, 0.9, nesterov=False)
