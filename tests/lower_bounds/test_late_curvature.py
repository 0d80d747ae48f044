"""Iterates that meet curvature late: instances that are admitted, below every upper bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.late_curvature import passages
from lastiterate.profile.lower import MeansLowerProfile, PerturbedLowerProfile
from lastiterate.run.optimizer import ExponentialAverage
from tests.lower_bounds.example_runs import penalised, square
from tests.reference import kinked_line
from tests.slow import slow

LATE = LOWER_BOUNDS["lower/late-curvature"]


class Worlds:
    """The literal losses of a passage: the example's gradient is -G, or L more."""

    def __init__(self, run, passage):
        self.run, self.passage = run, passage
        self.bound = run.sensitivity / (1.0 if run.adjacency == "zero-out" else 2.0)
        self.own = (-self.bound, run.sensitivity - self.bound)

    def others(self, x):
        p = self.passage
        return kinked_line.gradient(
            x, bound=self.bound, curvature=p.curvature, kink=p.kink, end=p.end
        )

    def gradient(self, x, own, *, sees):
        return kinked_line.batch_gradient(
            x,
            own=own, share=1.0 / self.run.batches.batch_size if sees else 0.0, others=self.others,
            penalty=self.run.loss.regulariser,
        )  # fmt: skip

    def last_densities(self, seen):
        run = self.run
        for own in self.own:
            moves = [
                lambda x, sees=sees, own=own: x - run.step_size * self.gradient(x, own, sees=sees)
                for sees in seen
            ]
            yield kinked_line.last_densities(
                start=self.passage.start,
                moves=moves,
                deviations=[run.step_size * run.noise_std] * run.steps,
            )


def seen_last(run):
    """Which steps see the example that is seen last."""
    length = run.batches.batches_per_epoch
    return [(run.steps - 1 - k) % length == 0 for k in range(run.steps)]


class TestDensities:
    """Against densities that are pushed through the very losses."""

    @pytest.mark.parametrize(
        "adjacency, penalty, z, step_size",
        [
            ("zero-out", 0.0, 3.0, 1.0),
            ("zero-out", 0.02, 8.0, 3.0),
            ("replace", 0.02, 3.0, 1.0),
            ("replace", 0.0, 8.0, 3.0),
        ],
    )
    def test_of_plain_steps(self, adjacency, penalty, z, step_size):
        run = penalised(
            li.Cyclic(200, 50), z=z, penalty=penalty, steps=8, step_size=step_size,
            adjacency=adjacency,
        )  # fmt: skip
        found = list(passages(run))
        assert found
        for passage in found[::3]:
            ours, theirs = Worlds(run, passage).last_densities(seen_last(run))
            profile = PerturbedLowerProfile(MeansLowerProfile([1.0], [passage.mu]), passage.lost)
            for epsilon in (0.05, 0.5):
                exact = kinked_line.hockey_stick(ours, theirs, epsilon)
                assert profile.delta(epsilon) <= exact * (1 + 2e-3) + 1e-9
                if passage.lost < 1e-3 * exact:
                    assert profile.delta(epsilon) >= 0.99 * exact - 1e-9

    def test_kinks_that_are_often_missed(self):
        """Where noise is large the loss of certainty counts, and is charged."""
        run = penalised(li.Cyclic(40, 10), z=3.0, penalty=0.0, steps=8, step_size=1.0)
        found = [one for one in passages(run) if 0.01 < one.lost < 0.4]
        assert found
        for passage in found[::2]:
            ours, theirs = Worlds(run, passage).last_densities(seen_last(run))
            exact = kinked_line.hockey_stick(ours, theirs, 0.1)
            mean = MeansLowerProfile([1.0], [passage.mu])
            assert PerturbedLowerProfile(mean, passage.lost).delta(0.1) <= exact

    def test_a_fixed_order_that_ends_without_the_example(self):
        """The curvature ends at a second kink, which is passed before the last steps."""
        run = penalised(
            li.FixedOrder(500, 100, (2, 5)), z=2.0, penalty=0.01, steps=8, step_size=1.0
        )
        best = max(passages(run), key=lambda one: one.mu)
        assert best.end < best.kink + 2.0 * run.sensitivity / best.curvature
        seen = [k + 1 in (2, 5) for k in range(8)]
        ours, theirs = Worlds(run, best).last_densities(seen)
        exact = kinked_line.hockey_stick(ours, theirs, 0.01)
        assert LATE.profile(run).delta(0.01) == pytest.approx(exact, rel=5e-3)


class TestMomentum:
    @pytest.mark.parametrize(
        "optimizer",
        [
            {"momentum": 0.9},
            {"momentum": 0.8, "dampening": 0.5},
            {"momentum": 0.7, "nesterov": True},
            {"average": ExponentialAverage(0.8)},
        ],
        ids=lambda one: "-".join(one),
    )
    def test_equals_the_loop_of_torch(self, optimizer):
        """mu from the response of the literal loop to each step's gradient, around its path."""
        run = penalised(
            li.Cyclic(4_000, 400), z=1.0, penalty=0.01, steps=40, step_size=0.3
        ).replace(**optimizer)
        passage = max(passages(run), key=lambda one: one.mu)
        assert passage.lost < 1e-9
        worlds = Worlds(run, passage)
        average = optimizer["average"].decay if "average" in optimizer else None
        loop = {
            "steps": run.steps, "lr": run.step_size, "momentum": run.momentum,
            "dampening": run.dampening, "nesterov": run.nesterov, "average": average,
        }  # fmt: skip

        def mu(position):
            def released(own, noise=None):
                def step(k, x):
                    sees = k % 10 == position
                    moved = 0.0 if noise is None else noise[k]
                    return worlds.gradient(x, own, sees=sees) + moved

                return kinked_line.torch_sgd(passage.start, step, **loop)

            small = 1e-5  # the path is linear between kinks, so any change is exact
            weights = [
                (released(worlds.own[0], small * unit) - released(worlds.own[0])) / small
                for unit in np.eye(run.steps)
            ]
            deviation = run.noise_std * math.sqrt(np.square(weights).sum())
            return abs(released(worlds.own[0]) - released(worlds.own[1])) / deviation

        assert passage.mu == pytest.approx(mu(passage.position), rel=1e-6)


class TestSoundness:
    @pytest.mark.parametrize("momentum", [0.0, slow(0.5), slow(0.9)])
    @settings(max_examples=6)
    @given(
        size=st.sampled_from([20, 200, 2_000]), length=st.integers(1, 12), steps=st.integers(2, 60),
        z=st.floats(0.3, 6.0), penalty=st.sampled_from([0.0, 1e-3, 0.05]),
        step_size=st.floats(0.02, 7.0), adjacency=st.sampled_from(["zero-out", "replace"]),
        release=st.sampled_from([0.0, 0.01]),
    )  # fmt: skip
    def test_below_every_upper_bound(
        self, momentum, size, length, steps, z, penalty, step_size, adjacency, release
    ):
        run = penalised(
            li.Cyclic(size * length, size), z=z, penalty=penalty, steps=steps,
            step_size=step_size, adjacency=adjacency, momentum=momentum, release_noise_std=release,
        )  # fmt: skip
        report = li.account(run)
        for delta in (1e-2, 1e-6):
            assert LATE.profile(run).epsilon(delta) <= report.epsilon(delta)

    @pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
    def test_instances_obey_the_description(self, adjacency):
        run = penalised(
            li.Cyclic(1_000, 100), z=1.0, penalty=0.01, steps=50, step_size=0.7,
            adjacency=adjacency,
        )  # fmt: skip
        for passage in passages(run):
            worlds = Worlds(run, passage)
            x = np.linspace(passage.kink - 1.0, passage.end + 1.0, 10_001)
            slope = worlds.others(x)
            rises = np.diff(slope) / np.diff(x)
            assert rises.min() >= -1e-9
            assert rises.max() <= run.loss.smoothness - run.loss.regulariser + 1e-9
            assert np.abs(slope).max() <= run.loss.lipschitz + 1e-12
            if adjacency == "replace":
                apart = [np.abs(slope - own).max() for own in worlds.own]
                assert max(*apart, worlds.own[1] - worlds.own[0]) <= run.sensitivity + 1e-12


class TestTightness:
    @pytest.mark.parametrize("adjacency, known", [("zero-out", 0.617), ("replace", 1.32)])
    def test_a_million_examples(self, adjacency, known):
        """The value of a prototype that carries weights through every step."""
        run = penalised(
            li.Cyclic(1_000_000, 10_000), z=4.0, penalty=1e-3, steps=3_000, step_size=0.5,
            adjacency=adjacency,
        )  # fmt: skip
        assert LATE.profile(run).epsilon(1e-5) == pytest.approx(known, rel=1e-3)

    def test_more_than_constant_curvature(self):
        run = penalised(li.Cyclic(50_000, 512), z=1.0, penalty=0.01, steps=970, step_size=0.5)
        flat = LOWER_BOUNDS["lower/quadratic"].profile(run).epsilon(1e-5)
        assert LATE.profile(run).epsilon(1e-5) > 2.0 * flat


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"domain": li.Ball(3.0)}, "Ball"),
        ({"batches": li.ShuffledOnce(1_000, 100)}, "ShuffledOnce"),
        ({"loss": li.Loss(smoothness=0.01, regulariser=0.01, lipschitz=1.0)}, "penalty"),
        ({"loss": li.Loss(smoothness=0.3, strong_convexity=0.1, lipschitz=1.0)}, "0.1"),
        ({"batches": li.Cyclic(10, 1)}, "batch_size=1"),
    ],
)
def test_refusals(changes, reason):
    run = penalised(li.Cyclic(1_000, 100), z=1.0, penalty=0.01, steps=50, step_size=0.7)
    assert any(reason in str(one) for one in LATE.unmet(run.replace(**changes)))
    assert "gradients of any size" in str(LATE.unmet(square(li.Cyclic(100, 10)))[0])
