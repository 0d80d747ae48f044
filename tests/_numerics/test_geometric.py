"""Powers and their sums against 60 digits, where c is all but 1, far from it, and 0."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from lastiterate._numerics.powers import (
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


def agrees(found, exact, log):
    """Within the stated error, or both below what floating point has digits for."""
    off = ulps(ulps_off(log) if log else 1.0)
    return down(mpf(found), off) <= exact + mpf(10) ** -300 and exact <= (
        up(mpf(found), off) + mpf(10) ** -300
    )


@pytest.mark.parametrize("gap", [*GAPS, *EXPANDING])
@pytest.mark.parametrize("count", COUNTS)
class TestFromTheGap:
    def test_powers(self, gap, count):
        found, exact = power(log_of(gap), count), (1 - mpf(gap)) ** count
        if math.isinf(found):
            assert exact > mpf(10) ** 300
        else:
            assert agrees(found, exact, count * log_of(gap) if count else 0.0)

    @pytest.mark.parametrize("stride", [1, 2, 40])
    def test_sums(self, gap, count, stride):
        found = sum_of_powers(stride * log_of(gap), count)
        exact = exact_sum(gap, count, stride)
        if math.isinf(found):
            assert exact > mpf(10) ** 300
        else:
            assert agrees(found, exact, stride * count * log_of(gap) if count else 0.0)

    def test_sums_with_the_gap_itself(self, gap, count):
        found = sum_of_powers(log_of(gap), count, gap=gap)
        exact = exact_sum(gap, count)
        if math.isinf(found):
            assert exact > mpf(10) ** 300
        else:
            assert agrees(found, exact, count * log_of(gap) if count else 0.0)


@pytest.mark.parametrize("gap", GAPS)
class TestArrays:
    @pytest.mark.parametrize("kind", [float, np.int64])
    def test_are_the_numbers_one_by_one(self, gap, kind):
        counts, log_c = np.array(COUNTS, dtype=kind), log_of(gap)
        for known in (None, gap):
            each = [sum_of_powers(log_c, count, gap=known) for count in COUNTS]
            assert sums_of_powers(log_c, counts, gap=known) == pytest.approx(each, rel=1e-15)
        powers = [power(log_c, count) for count in COUNTS]
        assert np.exp(logs_of_powers(log_c, counts)) == pytest.approx(powers, rel=1e-15)


@pytest.mark.parametrize("gap", [0.0, 1e-18, 1e-14, 1e-5, 0.1, 0.8, 0.9])
@pytest.mark.parametrize("count", [1, 7, 40, 10**6, 10**12])
class TestInverse:
    def test_is_never_above(self, gap, count):
        log = count * log_of(gap)
        c = 1 - mpf(gap)
        exact = mpf(count) if c == 1 else (c**-count - 1) / (1 - c)
        # What is below 1e-12 is left out of the sum.
        off = ulps(ulps_off(log)) + 1e-12
        for found, truth in (
            (inverse_power(log_of(gap), count), c**-count),
            (sum_of_inverse_powers(log_of(gap), count), exact),
        ):
            assert down(mpf(found), off) <= truth
            assert -log > 300.0 or truth <= up(mpf(found), off)
