"""Powers, their sums and binomial tails, against 60 digits and exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import binomial, mp, mpf

import lastiterate as li
from lastiterate._numerics.powers import (
    exceeded_with,
    inverse_power,
    log_of,
    logs_of_powers,
    power,
    sum_of_inverse_powers,
    sum_of_powers,
    sums_of_powers,
    ulps_off,
)
from lastiterate._numerics.rounding import down, ulps, up

GAPS = [0.0, 1e-18, 3e-16, 1e-12, 1e-7, 1e-3, 0.1, 0.5, 0.97, 1.0 - 1e-16, 1.0]
EXPANDING = [-1e-18, -1e-9, -1e-3, -0.5]
COUNTS = [0, 1, 2, 3, 40, 1_000, 10**6, 10**9, 10**12]


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(60):
        yield


def exact_sum(gap, count, stride=1):
    c = (1 - mpf(gap)) ** stride
    return mpf(count) if c == 1 else (1 - c**count) / (1 - c)


def agrees(found, exact, log, count):
    """Within the stated error, or both above, or below, what floating point has digits for."""
    if math.isinf(found):
        return exact > mpf(10) ** 300
    off, least = ulps(ulps_off(count * log) if count and log else 1.0), mpf(10) ** -300
    return down(mpf(found), off) <= exact + least and exact <= up(mpf(found), off) + least


@pytest.mark.parametrize("gap", [*GAPS, *EXPANDING])
def test_powers_and_sums(gap):
    log = log_of(gap)
    for count in COUNTS:
        assert agrees(power(log, count), (1 - mpf(gap)) ** count, log, count)
        for stride in (1, 2, 40):
            found = sum_of_powers(stride * log, count)
            assert agrees(found, exact_sum(gap, count, stride), stride * log, count)
        with_the_gap = sum_of_powers(log, count, gap=gap)
        assert agrees(with_the_gap, exact_sum(gap, count), log, count)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("kind", [float, np.int64])
def test_arrays_are_the_numbers_one_by_one(gap, kind):
    counts, log_c = np.array(COUNTS, dtype=kind), log_of(gap)
    for known in (None, gap):
        each = [sum_of_powers(log_c, count, gap=known) for count in COUNTS]
        assert sums_of_powers(log_c, counts, gap=known) == pytest.approx(each, rel=1e-15)
    powers = [power(log_c, count) for count in COUNTS]
    assert np.exp(logs_of_powers(log_c, counts)) == pytest.approx(powers, rel=1e-15)


@pytest.mark.parametrize("gap", [0.0, 1e-18, 1e-14, 1e-5, 0.1, 0.8, 0.9])
@pytest.mark.parametrize("count", [1, 7, 40, 10**6, 10**12])
def test_inverse_powers_are_never_above(gap, count):
    log, c = count * log_of(gap), 1 - mpf(gap)
    exact = mpf(count) if c == 1 else (c**-count - 1) / (1 - c)
    off = ulps(ulps_off(log)) + 1e-12  # what is below 1e-12 is left out of the sum
    for found, truth in (
        (inverse_power(log_of(gap), count), c**-count),
        (sum_of_inverse_powers(log_of(gap), count), exact),
    ):
        assert down(mpf(found), off) <= truth
        assert -log > 300.0 or truth <= up(mpf(found), off)


def tail(least, count, size):
    """The exact probability of `least` or more of `count`, each with probability size/count."""
    if count <= 60:
        share = Fraction(size, count)
        ways = range(least, count + 1)
        return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in ways)
    share = mpf(size) / count
    term = binomial(count, least) * share**least * (1 - share) ** (count - least)
    total = mpf(0)
    for k in range(least, count + 1):
        total += term
        ratio = mpf(count - k) / (k + 1) * share / (1 - share)
        term *= ratio
        if term < total * mpf(10) ** -30:
            return total + term / (1 - ratio)  # ratios fall
    return total


class TestBinomialTail:
    @pytest.mark.parametrize("probability", [0.3, 1e-9, 1e-16, 1e-30, 1e-300])
    @pytest.mark.parametrize(
        "examples, size",
        [(2, 1), (20, 5), (50, 49), (1_000, 1), (1_000, 100), (100_000, 50), (1_000_000, 1_000)],
    )
    def test_hardly_any_batch_is_larger(self, examples, size, probability):
        largest = exceeded_with(probability, examples, size / examples)
        assert tail(largest + 1, examples, size) <= probability
        for rule in (li.PoissonSampled, li.BallsAndBins, li.BallsAndBinsEachEpoch):
            assert rule(examples, size).size_exceeded_with(probability) == largest
        if size >= 50 <= examples - size and probability < 0.1:  # and not much too large
            assert tail(largest - 2, examples, size) > probability

    def test_at_the_ends(self):
        for probability, share in ((0.0, 0.5), (math.nan, 0.5), (1e-3, 1.0)):
            assert exceeded_with(probability, 100, share) == 100
        assert exceeded_with(1.0, 100, 0.5) >= 50

    def test_cut_batches_are_no_larger_than_the_cut(self):
        rule = li.PoissonSampled(1_000_000, 1_000, largest_batch=1_100)
        assert rule.size_exceeded_with(1e-30) == 1_100
