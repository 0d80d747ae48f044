"""Sizes of random batches, against exact binomial tails."""

import math
from fractions import Fraction

import mpmath
import pytest

import lastiterate as li
from lastiterate._numerics.powers import exceeded_with

PROBABILITIES = (0.3, 1e-9, 1e-16, 1e-30, 1e-300)


def tail(least, count, size):
    """The exact probability of `least` or more of `count`, each with probability size/count."""
    if count <= 60:
        share = Fraction(size, count)
        return sum(
            math.comb(count, k) * share**k * (1 - share) ** (count - k)
            for k in range(least, count + 1)
        )
    with mpmath.workdps(60):
        share = mpmath.mpf(size) / count
        others = count - least
        term = mpmath.binomial(count, least) * share**least * (1 - share) ** others
        total = mpmath.mpf(0)
        for k in range(least, count + 1):
            total += term
            ratio = mpmath.mpf(count - k) / (k + 1) * share / (1 - share)
            term *= ratio
            if term < total * mpmath.mpf(10) ** -30:
                return total + term / (1 - ratio)  # ratios fall
        return total


@pytest.mark.parametrize("probability", PROBABILITIES)
@pytest.mark.parametrize(
    "examples, size",
    [(2, 1), (20, 5), (50, 49), (1_000, 1), (1_000, 100), (100_000, 50), (1_000_000, 1_000)],
)
@pytest.mark.parametrize("rule", [li.PoissonSampled, li.BallsAndBins, li.BallsAndBinsEachEpoch])
def test_hardly_any_batch_is_larger(rule, examples, size, probability):
    largest = rule(examples, size).size_exceeded_with(probability)
    assert tail(largest + 1, examples, size) <= probability


@pytest.mark.parametrize("probability", PROBABILITIES[1:])
@pytest.mark.parametrize("examples, size", [(1_000, 100), (100_000, 50), (1_000_000, 1_000)])
def test_and_no_size_is_much_too_large(examples, size, probability):
    largest = exceeded_with(probability, examples, size / examples)
    assert tail(largest - 2, examples, size) > probability


def test_at_the_ends():
    assert exceeded_with(0.0, 100, 0.5) == 100
    assert exceeded_with(math.nan, 100, 0.5) == 100
    assert exceeded_with(1e-3, 100, 1.0) == 100
    assert exceeded_with(1.0, 100, 0.5) >= 50


def test_cut_batches_are_no_larger_than_the_cut():
    rule = li.PoissonSampled(1_000_000, 1_000, largest_batch=1_100)
    assert rule.size_exceeded_with(1e-30) == 1_100
