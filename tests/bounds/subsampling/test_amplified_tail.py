"""Sampled batches whose last steps stay hidden: the oracle, and what it improves."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.subsampling import amplified_tail
from lastiterate.bounds.subsampling.amplified_tail import SAMPLED_AMPLIFIED_TAIL, TailSplit
from lastiterate.bounds.subsampling.average import SAMPLED_AVERAGE
from tests.bounds.runs import described
from tests.readme_run import accounted, readme_run
from tests.reference.sampled_walk import hockey_stick, sampled_pair
from tests.slow import slow_if


class TestOracle:
    """Every split is a theorem: the exact law of one-dimensional runs is never above it."""

    # c < 1 and c = 1, with and without a projection; then any.

    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed != 23, range(24)))
    def test_random_splits(self, seed, monkeypatch):
        rng = np.random.default_rng(seed)
        steps, size, examples = int(rng.integers(4, 60)), 2, int(rng.integers(4, 30))
        eta, strong = 0.5, float(rng.choice([0.0, 0.1, 0.6]))
        shift, half = rng.uniform(0.2, 1.5), float(rng.choice([math.inf, 1.0, 3.0]))
        run = described(
            li.SampledWithoutReplacement(examples, size), steps, sensitivity=size * shift / eta,
            loss=li.Loss(smoothness=2.0, strong_convexity=strong), step_size=eta,
            noise_std=1.0 / eta,
            domain=li.Unbounded() if math.isinf(half) else li.Ball(2 * half),
        )  # fmt: skip
        split = TailSplit(int(rng.integers(1, steps)), float(rng.uniform(0.3, 0.95)))
        monkeypatch.setattr(amplified_tail, "best_split", lambda *_: split)
        monkeypatch.setattr(amplified_tail, "_uses_law", lambda run: bool(seed % 2))
        apart, opposite = (0.0, shift), (-shift / 2, shift / 2)
        slope = rng.choice([1 - eta * strong, rng.uniform(0.0, 1 - eta * strong)])
        room = half if math.isfinite(half) else 8.0 * math.sqrt(steps) + shift * steps
        left_out = run.replace(adjacency="zero-out", sensitivity=run.sensitivity / 2)
        # Against nothing, and against another that pulls the other way.
        alone, displacing = (shift / 2, 0.0), (shift, shift / 2)
        replaced, reduced = map(SAMPLED_AMPLIFIED_TAIL.profile, (run, left_out))
        every = [(replaced, apart), (replaced, opposite), (reduced, alone), (reduced, displacing)]
        for bound, shifts in every:
            laws = sampled_pair(
                steps=steps, slope=slope, shifts=shifts, q=size / examples, noise=1.0, low=-room,
                high=room, cells=300, clip=math.isfinite(half),
            )  # fmt: skip
            for epsilon in (0.1, 0.5, 1.0, 2.0):
                assert hockey_stick(*laws, epsilon) <= bound.delta(epsilon) * (1 + 1e-6) + 1e-7


class TestCurvature:
    """A batch that lacks the example lacks its curvature: with b = 1 its step is the identity."""

    @staticmethod
    def _delta(adjacency, strong_convexity, regulariser=0.0):
        loss = li.Loss(smoothness=1.0, strong_convexity=strong_convexity, regulariser=regulariser)
        batches, ball = li.SampledWithoutReplacement(2, 1), li.Ball(3.0)
        run = described(batches, 20, loss=loss, domain=ball, adjacency=adjacency)
        return SAMPLED_AMPLIFIED_TAIL.profile(run).delta(1.0)

    def test_of_the_losses_counts_if_an_example_is_replaced(self):
        assert self._delta("replace", 0.5) < 0.9 * self._delta("replace", 0.0)

    @pytest.mark.parametrize("regulariser", [0.0, 0.2])
    def test_only_the_penalty_counts_if_an_example_is_left_out(self, regulariser):
        curved = self._delta("zero-out", 0.5, regulariser)
        assert curved == self._delta("zero-out", regulariser, regulariser)

    def test_of_the_penalty_counts_if_an_example_is_left_out(self):
        assert self._delta("zero-out", 0.2, 0.2) < 0.95 * self._delta("zero-out", 0.0)


class TestImprovement:
    def test_below_both_of_its_parts(self):
        run = readme_run(li.SampledWithoutReplacement)
        report = accounted(run)
        assert report.bound == "random-order/sampled"
        assert report.epsilon(1e-5) < 0.96 * SAMPLED_AVERAGE.profile(run).epsilon(1e-5)
        assert 3.1 < report.lower.epsilon(1e-5) < report.epsilon(1e-5) < 3.9

    @pytest.mark.slow
    def test_most_where_losses_curve(self):
        run = readme_run(li.SampledWithoutReplacement, 50, 2.0)
        assert li.account(run).epsilon(1e-5) < 0.3 * SAMPLED_AVERAGE.profile(run).epsilon(1e-5)

    def test_of_a_single_step_it_is_amplification(self):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(steps=1)
        report = li.account(run)
        amplified = report.all["composition/sampled"].epsilon(1e-5)
        hidden = report.all["random-order/sampled"].epsilon(1e-5)
        assert hidden == pytest.approx(amplified, rel=1e-3)

    @pytest.mark.parametrize(
        "changes",
        [
            {"release_noise_std": 1e160},
            {"sensitivity": 1e-300, "noise_std": 1e30},
            {"loss": li.Loss(smoothness=20.0, strong_convexity=20.0)},
            {"noise_std": 1e-3},
            {"steps": 153, "sensitivity": 48.0},
        ],
    )
    def test_extremes_do_not_break_the_account(self, changes):
        report = li.account(readme_run(li.SampledWithoutReplacement, 1).replace(**changes))
        assert report.all["random-order/sampled"].epsilon(1e-5) >= 0.0

    def test_leaving_out_is_charged_twice(self):
        loss = li.Loss(smoothness=32.502, regulariser=0.002)
        run = readme_run(li.SampledWithoutReplacement, 50).replace(loss=loss)
        left_out = run.replace(adjacency="zero-out", sensitivity=5.0)
        charged = SAMPLED_AMPLIFIED_TAIL.profile(left_out).epsilon(1e-5)
        assert charged == SAMPLED_AMPLIFIED_TAIL.profile(run).epsilon(1e-5)

    def test_needs_what_both_need(self):
        run = readme_run(li.SampledWithoutReplacement, 50)
        assert SAMPLED_AMPLIFIED_TAIL.unmet(run.replace(releases="last-iterate-and-order"))
        assert SAMPLED_AMPLIFIED_TAIL.unmet(run.replace(loss=li.Loss(smoothness=9.0, convex=False)))
        assert SAMPLED_AMPLIFIED_TAIL.unmet(run.replace(noise_std=1e-9))
