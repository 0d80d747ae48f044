"""The discounted sum of participations: a law that dominates the true one, and is near it."""

import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.poisson import discounted_sum


def true_tails(gap, count, probability, levels):
    """P(sum > level), from below: every participation rounded down to a fine grid, one by one."""
    fine = 4000.0 / max(sum((1 - gap) ** i for i in range(count)), 1.0)
    law = np.ones(1)
    for i in range(count):
        cell = int((1 - gap) ** i * fine)
        moved = np.append(np.zeros(cell), law) * probability
        moved[: law.size] += (1 - probability) * law
        law = moved
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    first = np.minimum(np.floor(levels * fine + 1e-9).astype(int) + 1, law.size)
    return above[first]


@pytest.mark.parametrize(
    "gap, count, probability",
    [
        (0.0, 1, 0.3),
        (0.0, 40, 0.02),
        (0.0, 500, 0.5),
        (1e-4, 40, 0.1),
        (0.01, 1, 0.4),
        (0.01, 7, 0.4),
        (0.01, 700, 0.02),
        (0.01, 700, 0.6),
        (0.2, 90, 0.01),
        (0.2, 90, 0.9),
        (0.7, 3, 1e-3),
        (0.97, 4, 0.5),
    ],
)
def test_dominates_the_truth_and_is_near(gap, count, probability):
    law = discounted_sum(gap, count, probability)
    assert np.all(np.diff(law.levels) >= 0.0)
    assert np.all(law.masses >= 0.0)
    assert math.fsum(law.masses) <= 1.0 + 1e-15
    claimed = 1.0 - np.cumsum(law.masses)
    assert np.all(true_tails(gap, count, probability, law.levels) <= claimed + 1e-13)
    mean = probability * sum((1 - gap) ** i for i in range(count))
    assert law.levels @ law.masses <= 1.05 * mean


@pytest.mark.parametrize("probability", [1e-7, 1e-3, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("gap, count", [(0.0, 10**7), (1e-9, 10**9), (1e-4, 10**9), (0.5, 10**9)])
def test_long_runs_have_the_moments_that_they_must(gap, count, probability):
    law = discounted_sum(gap, count, probability)
    kept = -math.expm1(count * math.log1p(-gap)) / gap if gap else float(count)
    mean = probability * kept
    found = float(law.levels @ law.masses)
    # With very many participations only the tail is known, and the mean is a little too large.
    spread = math.sqrt(mean)
    assert mean * (1 - 1e-6) <= found <= 1.05 * mean + (1.5 * spread if mean > 1500 else 0.0)
    assert math.fsum(law.masses) > 1.0 - 1e-15


def test_a_law_too_small_would_be_noticed():
    law = discounted_sum(0.01, 700, 0.6)
    claimed = 1.0 - np.cumsum(law.masses)
    assert np.any(true_tails(0.01, 700, 0.6, 0.9 * law.levels) > claimed + 1e-13)
