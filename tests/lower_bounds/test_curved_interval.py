"""Iterates that rest on a curved interval: below exact instances, and near."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.curved_interval import interval_profile, intervals
from tests.reference import noisy_line
from tests.slow import slow

INTERVAL = LOWER_BOUNDS["lower/curved-interval"]
SIZE = 400


def run_of(rule, *, r, adjacency, penalty, steps, curvature=0.6, size=SIZE):
    """Step and noise 1: the example's gradient is r in units of the noise of a step."""
    sensitivity = r * size
    bound = sensitivity * (1.0 if adjacency == "zero-out" else 0.5)
    return li.TrainingRun(
        loss=li.Loss(smoothness=curvature + penalty, regulariser=penalty, lipschitz=bound),
        sensitivity=sensitivity, batches=rule(10 * size, size), steps=steps, step_size=1.0,
        noise_std=1.0, adjacency=adjacency,
    )  # fmt: skip


def others(run, one, middle):
    """The others' gradient, and its slope, for an interval that rests at `middle`."""
    level = one.pull * run.sensitivity

    def gradient(x):
        return noisy_line.others_gradient(
            x, middle=middle, curvature=one.curvature, half=one.curvature * one.half, level=-level
        )

    return gradient


class TestDensities:
    """Against densities that are pushed through the very losses."""

    def laws(self, run, one, cells):
        penalty = run.loss.regulariser
        middle = one.pull * run.sensitivity / penalty if one.pull else 0.0
        near = middle + np.linspace(-20.0, 20.0, cells)
        for own in (one.own, one.own - 1.0):
            yield noisy_line.last_law(
                size=run.batches.batch_size, lam=penalty, own=own * run.sensitivity,
                gradient=others(run, one, middle), chance=0.1, sizes=None,
                grids=[np.array([middle]), *[near] * run.steps],
            )  # fmt: skip

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("penalty", [0.0, slow(0.1)])
    @pytest.mark.parametrize("r", [1.0, slow(2.5)])
    def test_sampled_batches(self, adjacency, penalty, r):
        run = run_of(
            li.SampledWithoutReplacement, r=r, adjacency=adjacency, penalty=penalty, steps=4
        )
        found = list(intervals(run))
        assert len(found) == (4 if penalty == 0.0 else 8)
        for one in found[:3]:
            ours, theirs = self.laws(run, one, 801)
            profile = interval_profile(run, one)
            for epsilon in (0.3, 1.0):
                exact = noisy_line.both_ways(ours, theirs, epsilon)
                assert profile.delta(epsilon) <= exact * (1 + 2e-3) + 1e-9
                assert profile.delta(epsilon) >= 0.93 * exact - 1e-6

    def test_small_batches_keep_more_of_the_past(self):
        """Where 1/b of the curvature counts, it is charged in both directions."""
        run = run_of(
            li.SampledWithoutReplacement, r=5.0, adjacency="zero-out", penalty=0.2, steps=4, size=20
        )
        for one in list(intervals(run))[::3]:
            ours, theirs = self.laws(run, one, 801)
            for epsilon in (0.3, 1.0):
                exact = noisy_line.both_ways(ours, theirs, epsilon)
                assert 0.0 < interval_profile(run, one).delta(epsilon) <= exact


class TestInstances:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_obey_the_description(self, adjacency):
        run = run_of(li.ShuffledOnce, r=1.0, adjacency=adjacency, penalty=0.1, steps=100)
        for one in intervals(run):
            gradient = others(run, one, 0.0)
            x = np.linspace(-2.0 * one.half, 2.0 * one.half, 4_001)
            slopes = np.diff(gradient(x)) / np.diff(x)
            assert slopes.min() >= -1e-9
            assert slopes.max() <= run.loss.smoothness - run.loss.regulariser + 1e-9
            assert np.abs(gradient(x)).max() <= run.loss.lipschitz * (1 + 1e-12)
            for own in (one.own, one.own - 1.0):
                apart = np.abs(gradient(x) - own * run.sensitivity).max()
                allowed = 2.0 if adjacency == "zero-out" else 1.0
                assert apart <= allowed * run.sensitivity * (1 + 1e-12)

    def test_never_leave_the_interval(self):
        """Simulated: participations in every step, which no rule exceeds."""
        run = run_of(li.ShuffledOnce, r=1.0, adjacency="zero-out", penalty=0.1, steps=100)
        rng = np.random.default_rng(0)
        for one in intervals(run):
            keeps = 1.0 - run.loss.regulariser - one.curvature * (1.0 - 1.0 / SIZE)
            x = np.zeros(20_000)
            for _ in range(100):
                x = keeps * x + one.moves[0] + rng.standard_normal(x.size)
                assert np.abs(x).max() <= one.half


class TestValues:
    @pytest.mark.parametrize("adjacency, known", [("zero-out", 1.57), ("replace", 1.97)])
    def test_of_a_prototype_with_an_endless_interval(self, adjacency, known):
        run = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0),
            batches=li.ShuffledEachEpoch(50_000, 512), clip_norm=1.0, noise_multiplier=1.0,
            steps=1_164, step_size=2.0, adjacency=adjacency,
        )  # fmt: skip
        found = INTERVAL.profile(run).epsilon(1e-5)
        assert found == pytest.approx(known, abs=0.02)
        assert found > 2.0 * LOWER_BOUNDS["lower/quadratic"].profile(run).epsilon(1e-5)

    @settings(max_examples=5)
    @given(
        rule=st.sampled_from([li.ShuffledOnce, li.ShuffledEachEpoch, li.SampledWithoutReplacement]),
        r=st.floats(0.1, 3.0), adjacency=st.sampled_from(["replace", "zero-out"]),
        penalty=st.sampled_from([0.0, 1e-3, 0.05]), curvature=st.floats(0.05, 1.9),
        epochs=st.integers(1, 20),
    )  # fmt: skip
    def test_below_every_upper_bound(self, rule, r, adjacency, penalty, curvature, epochs):
        run = run_of(
            rule, r=r, adjacency=adjacency, penalty=penalty, curvature=curvature, steps=10 * epochs
        )
        report = li.account(run)
        for delta in (1e-2, 1e-6):
            assert INTERVAL.profile(run).epsilon(delta) <= report.epsilon(delta)

    def test_results_far_apart(self):
        run = run_of(li.ShuffledOnce, r=1e4, adjacency="zero-out", penalty=0.1, steps=1_000)
        assert 10.0 < INTERVAL.profile(run).epsilon(1e-5) < np.inf


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"domain": li.Ball(3.0)}, "Ball"),
        ({"batches": li.PoissonSampled(4_000, 400)}, "PoissonSampled"),
        ({"noise_std": 1_000.0}, "sensitivity / noise_std = 0.4"),
        ({"batches": li.ShuffledOnce(40, 1)}, "batch_size=1"),
        ({"step_size": [1.0] * 99 + [0.5]}, "a schedule"),
        ({"loss": li.Loss(smoothness=0.6, regulariser=0.6, lipschitz=400.0)}, "0.6"),
    ],
)
def test_refusals(changes, reason):
    run = run_of(li.ShuffledOnce, r=1.0, adjacency="zero-out", penalty=0.1, steps=100)
    assert not INTERVAL.unmet(run)
    assert any(reason in str(one) for one in INTERVAL.unmet(run.replace(**changes)))
