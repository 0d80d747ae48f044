"""Which run is made where none is told: its steps, and what is spent on the mean of rows."""

import math

import numpy as np
import pytest
from sklearn.base import clone

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.train.defaults import (
    LEAST_SHARE,
    MOST_SHARE,
    default_run,
    gaussian_parameter,
    mean_release,
)
from lastiterate.train.objectives import Logistic, Softmax
from lastiterate.train.settings import RunSettings
from tests.slow import slow

MU = gaussian_parameter(1.0, 1e-5)


def released(examples, features=30, adjacency="replace"):
    return mean_release(MU, adjacency=adjacency, features=features, examples=examples)


class TestRule:
    def test_many_rows_cost_the_least_share(self):
        assert released(100_000).mu == pytest.approx(LEAST_SHARE * MU)

    def test_the_fewer_rows_the_larger_the_share_up_to_the_most(self):
        shares = [released(n).mu / MU for n in (100_000, 1_000, 900, 800, 500)]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(MOST_SHARE)
        assert len({round(one, 6) for one in shares}) >= 4

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("examples", [50, 200, 450, 700, 1_100, 5_000])
    def test_noise_is_at_most_half_the_bound(self, examples, adjacency):
        release = released(examples, adjacency=adjacency)
        if release is not None:
            noise = release.noise_std * math.sqrt(30) / examples
            assert noise <= 0.5
            assert LEAST_SHARE * MU * (1 - 1e-9) <= release.mu <= MOST_SHARE * MU * (1 + 1e-9)

    def test_a_mean_that_would_be_lost_is_not_published(self):
        assert released(100) is None
        assert released(100_000, features=10**9) is None

    def test_it_jumps_nowhere_but_where_the_mean_is_lost(self):
        mus = [released(n).mu for n in range(500, 3_000)]
        assert max(abs(np.diff(mus))) < 0.01 * MU


RADIUS = 1.0078
X = np.random.default_rng(0).normal(size=(800, 3))
Y = X[:, 0] > 0.0
KEY = bytes(32)


def run_of(objective=None, *, examples=5_000, **settings):
    chosen = RunSettings(**{"epsilon": 4.0, "epochs": 2} | settings)
    objective = Logistic(clip=0.25) if objective is None else objective
    return default_run(objective, chosen, examples=examples, radius=RADIUS)


class TestTheRun:
    def test_steps_fall_linearly_to_a_tenth_and_stay_within_the_passes(self):
        run = run_of()
        sizes = np.array(run.step_size)
        assert sizes[0] == run_of(epochs=20).step_size
        assert np.allclose(np.diff(sizes), (sizes[-1] - sizes[0]) / (run.steps - 1))
        assert sizes[-1] == pytest.approx(0.1 * sizes[0])
        assert run.batches.batch_size == 8
        assert run.steps <= 2 * run.batches.batches_per_epoch

    def test_noise_in_parameters_falls_as_the_root(self):
        run = run_of()
        moved = np.array(run.step_size) * np.array(run.noise_std)
        assert np.allclose(moved / moved[0], np.sqrt(np.linspace(1.0, 0.1, run.steps)))

    def test_the_sum_of_step_sizes_is_four_fifths_where_batches_allow(self):
        falling, even = run_of(epsilon=2.0), run_of(epsilon=2.0, epochs=20)
        assert sum(falling.step_size) == pytest.approx(
            0.8 * even.steps * even.step_size, rel=2 / falling.steps
        )

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_the_target_is_met_and_hardly_more(self, adjacency):
        run = run_of(adjacency=adjacency, counting=0.0)
        assert not run.is_constant
        assert 3.99 < li.account(run).epsilon(1e-5) <= 4.0

    @pytest.mark.parametrize(
        "settings",
        [
            {"epochs": 20},
            {"epsilon": 1.0},
            {"batch_size": 8},
            {"release_noise_std": 0.1},
            {"l2": 0.01},
            {"examples_per_person": 2, "epsilon": 16.0},
            {"batches": "shuffled-each-epoch"},
            {"batches": "full"},
            {"epsilon": None, "noise_std": 0.01},
        ],
        ids=str,
    )
    def test_they_are_even(self, settings):
        assert run_of(**{"examples": 2_000} | settings).is_constant

    @pytest.mark.parametrize("examples", [20_000, slow(200_000)])
    def test_also_of_envelopes(self, examples):
        run = run_of(Softmax(classes=10, clip=0.35), examples=examples, epochs=1)
        assert not run.is_constant


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestFitted:
    MODEL = PrivateLogisticRegression(epsilon=4.0, epochs=2, random_state=0, classes=[0, 1])

    def test_the_certificate_verifies(self):
        model = clone(self.MODEL).fit(X, Y)
        report = li.verify(model.certificate_, parameters=model.parameters_)
        assert not report.run.is_constant
        assert 3.9 < report.epsilon(1e-5) <= 4.0

    def test_models_that_may_have_to_unlearn_have_even_steps(self):
        model = clone(self.MODEL).fit(X, Y, key=KEY)
        assert model.privacy_.run.is_constant
        forgot = model.unlearn(X, Y, rows=[3], key=KEY, extra_steps=50)
        assert forgot.unlearn(X, Y, rows=[4], key=KEY, extra_steps=50).unlearning_.extra_steps == 50
