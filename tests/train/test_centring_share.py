"""What is spent on the mean of rows follows from public quantities, and adds up with the rest."""

import math

import numpy as np
import pytest

from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.train.defaults import LEAST, MOST, gaussian_parameter, mean_release
from tests.train.problems import ROWS, SIDES

MU = gaussian_parameter(1.0, 1e-5)


def found(examples, features=30, adjacency="replace"):
    return mean_release(MU, adjacency=adjacency, features=features, examples=examples)


class TestRule:
    def test_many_rows_cost_the_least_share(self):
        assert found(100_000).mu == pytest.approx(LEAST * MU)

    def test_the_fewer_rows_the_larger_the_share_up_to_the_most(self):
        shares = [found(n).mu / MU for n in (100_000, 1_000, 900, 800, 500)]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(MOST)
        assert len({round(one, 6) for one in shares}) >= 4

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("examples", [50, 200, 450, 700, 1_100, 5_000])
    def test_noise_is_at_most_half_the_bound(self, examples, adjacency):
        release = found(examples, adjacency=adjacency)
        if release is not None:
            noise = release.noise_std * math.sqrt(30) / examples
            assert noise <= 0.5
            assert LEAST * MU * (1 - 1e-9) <= release.mu <= MOST * MU * (1 + 1e-9)

    def test_a_mean_that_would_be_lost_is_not_published(self):
        assert found(100) is None
        assert found(100_000, features=10**9) is None

    def test_it_jumps_nowhere_but_where_the_mean_is_lost(self):
        mus = [found(n).mu for n in range(500, 3_000)]
        assert max(abs(np.diff(mus))) < 0.01 * MU


class TestBudget:
    @pytest.mark.parametrize("examples", [200, 400, 600])
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_all_releases_together_meet_the_target_only_just(self, examples, adjacency):
        model = PrivateLogisticRegression(adjacency=adjacency).fit(
            ROWS[:examples], SIDES[:examples]
        )
        assert 0.99 < model.privacy_.epsilon(1e-5) <= 1.0
