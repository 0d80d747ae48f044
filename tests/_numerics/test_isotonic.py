"""Pooling of adjacent violators, plainly and in logarithms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from lastiterate._numerics import isotonic as pools
from lastiterate._numerics.isotonic import first_of_pools, isotonic, pooled, pooled_logs

blocks = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=40)


class TestPools:
    @given(blocks)
    def test_slopes_increase_and_nothing_is_lost(self, given):
        found = pooled(given)
        slopes = [pool.mass / pool.width for pool in found]
        assert all(one <= other for one, other in itertools.pairwise(slopes))
        assert sum(pool.blocks for pool in found) == len(given)
        assert math.fsum(p.mass for p in found) == pytest.approx(sum(m for m, _ in given))
        assert math.fsum(p.width for p in found) == pytest.approx(sum(w for _, w in given))

    @given(blocks)
    def test_logarithms_say_the_same(self, given):
        plain = pooled(given)
        logs = pooled_logs([(math.log(mass), math.log(width)) for mass, width in given])
        energies = [
            math.fsum(p.mass**2 / p.width for p in plain),
            math.fsum(math.exp(2 * p.mass - p.width) for p in logs),
        ]
        assert energies[0] == pytest.approx(energies[1], rel=1e-9)

    def test_logarithms_far_beyond_floating_point(self):
        (pool,) = pooled_logs([(5_000.0, 1_000.0), (4_000.0, 1_000.0)])
        assert pool.blocks == 2
        assert pool == pytest.approx((5_000.0, 1_000.0 + math.log(2.0), 2))

    def test_a_block_without_width_joins_what_follows(self):
        assert pooled([(1.0, 0.0), (1.0, 2.0)]) == [(2.0, 2.0, 2)]


class TestRegression:
    @given(blocks)
    def test_is_scipy_s(self, given):
        values, weights = map(np.array, zip(*given, strict=True))
        exact = isotonic_regression(values, weights=weights).x
        assert isotonic(values, weights) == pytest.approx(exact, rel=1e-9)

    def test_many_blocks_agree_with_few(self, monkeypatch):
        rng = np.random.default_rng(0)
        values, weights = rng.random(300), rng.random(300) + 0.1
        few = isotonic(values, weights)
        monkeypatch.setattr(pools, "_MAX_POOLED_BLOCKS", 10)
        assert isotonic(values, weights) == pytest.approx(few, rel=1e-12)


class TestFirstOfPools:
    @pytest.mark.parametrize("size", [1, 2, 50, 600])
    def test_where_a_regression_has_its_blocks(self, size):
        rng = np.random.default_rng(size)
        masses, widths = rng.uniform(0.5, 2.0, size), rng.uniform(0.1, 1.0, size)
        exact = isotonic_regression(masses / widths, weights=widths).blocks[:-1]
        np.testing.assert_array_equal(first_of_pools(masses, widths), exact)

    def test_without_loading_a_regression_for_a_few(self, monkeypatch):
        masses, widths = np.array([3.0, 1.0, 2.0, 8.0]), np.ones(4)
        few = first_of_pools(masses, widths)
        monkeypatch.setattr(pools, "_MAX_REPEATED_BLOCKS", 1)
        assert few.tolist() == first_of_pools(masses, widths).tolist() == [0, 3]
