"""Searches end on the safe side, and near the edge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate._numerics.search import (
    about_met,
    bracket,
    last_count_true,
    last_true,
    least_met,
    least_true,
)


@given(st.floats(0, 1e6))
def test_least_and_last_are_seen_to_hold_and_end_at_the_edge(edge):
    found = least_true(lambda x: x >= edge, -1.0, 1e7)
    assert found >= edge
    assert math.nextafter(math.nextafter(found, -1.0), -1.0) <= edge
    found = last_true(lambda x: x <= edge, -1.0, 1e7)
    assert found <= edge
    assert math.nextafter(math.nextafter(found, 1e7), 1e7) >= edge


@given(st.floats(0, 1e6), st.floats(1e-6, 1.0))
def test_brackets_are_no_farther_apart_than_asked(edge, apart):
    low, high = bracket(lambda x: x <= edge, -1.0, 1e7, apart=apart)
    assert low <= edge <= high
    assert high - low <= apart


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_counts(edge, most):
    assert last_count_true(lambda k: k <= edge, most) == min(edge, most)


class TestLeastMet:
    @pytest.mark.parametrize("start", [-30.0, 0.0, 40.0])
    @pytest.mark.parametrize("edge", [-12.3, 0.0, 7.7])
    @pytest.mark.parametrize("steepness", [0.02, 1.0, 60.0])
    def test_is_met_and_hardly_more(self, start, edge, steepness):
        def excess(x):
            return max(min(steepness * math.sinh((edge - x) / 8.0), 50.0), -50.0)

        found = least_met(excess, start, tolerance=1e-7, farthest=600.0)
        assert edge <= found <= edge + 2e-7

    def test_ends_of_the_range(self):
        assert least_met(lambda x: 1.0, 0.0, tolerance=1e-7, farthest=90.0) is None
        assert least_met(lambda x: -1.0, 0.0, tolerance=1e-7, farthest=90.0) <= -30.0

    def test_what_is_no_number_is_not_met(self):
        assert least_met(lambda x: math.nan, 0.0, tolerance=1e-7, farthest=90.0) is None
        found = least_met(
            lambda x: 5.0 - x if x > 3.0 else math.nan, 0.0, tolerance=1e-7, farthest=90.0
        )
        assert 5.0 <= found <= 5.0 + 1e-6


class TestAboutMet:
    @pytest.mark.parametrize("start", [-3.0, 0.0, 2.0, 9.0])
    def test_few_points_lead_to_a_root_by_a_quick_function_of_the_same_shape(self, start):
        seen = []

        def excess(x):
            seen.append(x)
            return 1.7 - 0.9 * x - 0.02 * math.sin(x)

        found = about_met(
            excess, lambda x: 1.9 - 0.85 * x, start, tolerance=1e-7, farthest=90.0, stride=0.02
        )
        assert abs(excess(found)) < 1e-6
        assert len(seen) <= 7

    def test_of_functions_that_are_never_met_or_flat(self):
        given = {"tolerance": 1e-7, "farthest": 90.0, "stride": 0.02}
        assert about_met(lambda x: 1.0, lambda x: 1.0, 0.0, **given) is None
        assert about_met(lambda x: -1.0, lambda x: -1.0, 0.0, **given) <= -30.0
