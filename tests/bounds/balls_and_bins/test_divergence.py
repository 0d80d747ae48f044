"""Mixtures over hidden positions with windows: below those without, never below the truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.balls_and_bins.divergence import MixtureDivergence, MixtureGrid, MixturePair
from lastiterate.bounds.shuffling.positions import EndWindows
from lastiterate.bounds.shuffling.transport import positions_of
from lastiterate.shifts.patterns import NOTHING_SPENT
from tests.bounds.balls_and_bins.draws import RULES, SHUFFLED, seen
from tests.bounds.runs import described

EPSILONS = (0.2, 0.6, 1.2, 2.0)
ROUGH = MixtureGrid(cells=300, step=0.02, spacing=0.4)
SHAPES = [(2, 2), (3, 3), (4, 4), (2, 4), (2, 5), (3, 6), (5, 5), (3, 4), (2, 9)]  # batches, steps
# Windows or positions that are charged too little, which the search must notice.
LOWERED = [
    pytest.param(lambda one: replace(one, window_costs=0.8 * one.window_costs), id="windows"),
    pytest.param(lambda one: replace(one, mus=0.6 * one.mus), id="positions outside windows"),
]


def arranged(rule, shape, ratio, contraction):
    """The shuffled run whose positions have the mus of the draws: no gradient above `ratio`."""
    batches, steps = shape
    loss = li.Loss(smoothness=1.0 + contraction, strong_convexity=1.0 - contraction)
    return described(SHUFFLED[rule](batches, 1), steps, loss=loss, sensitivity=ratio)


def last_iterates(rule, shape, factors, added):
    """(means by draw, standard deviations): in each step two coordinates shrink by factors."""
    rows = seen(rule, shape)
    means, variances = np.zeros((len(rows), 2)), np.zeros(2)
    for step, factor in enumerate(factors):
        means = factor * means + rows[:, step, None] * added[step]
        variances = factor**2 * variances + 1.0
    return means, np.sqrt(variances)


def hockey_sticks(ours, theirs, stds, epsilons):
    """sup P(A) - e^epsilon Q(A), A made of cells: from below, and close."""
    both = np.concatenate([ours, theirs])
    grids = np.linspace(both.min(axis=0) - 6.0 * stds, both.max(axis=0) + 6.0 * stds, 121).T

    def masses(means):
        sides = [
            np.diff(ndtr((grid[:, None] - means[:, k]) / stds[k]), axis=0)
            for k, grid in enumerate(grids)
        ]
        return sides[0] @ sides[1].T / len(means)

    one, other = masses(ours), masses(theirs)
    return [float(np.maximum(one - math.exp(e) * other, 0.0).sum()) for e in epsilons]


def worst_share(count, seed, changed=lambda mixture: mixture):
    """The largest share of what is certified by random choices that leaks from random runs."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(count):
        rule = RULES[rng.integers(2)]
        shape = SHAPES[rng.integers(len(SHAPES))]
        ratio, contraction = rng.choice([0.7, 1.5, 2.5]), float(rng.choice([1.0, 0.9, 0.6]))
        positions = positions_of(arranged(rule, shape, ratio, contraction))
        count_hidden = int(rng.integers(1, positions.weights().size))
        mixture = changed(positions.mixture(count_hidden, float(rng.choice([0.4, 0.8, 0.95]))))
        steps = shape[1]
        factors = contraction * rng.choice([0.0, 1.0, 1.0, -1.0, rng.random()], (steps, 2))
        angles = rng.choice([0.0, 0.5 * np.pi, np.pi, rng.uniform(0, 2 * np.pi)], steps)
        if rng.random() < 0.5:  # always the same way, in steps that keep it
            angles, factors = np.zeros(steps), np.abs(factors)
        added = ratio * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        ours, stds = last_iterates(rule, shape, factors, added)
        left_out = rng.random() < 0.4
        theirs = np.zeros((1, 2)) if left_out else -ours
        pairs = [(ours, theirs, MixturePair.MIXTURE_FIRST if left_out else MixturePair.MIRRORED)]
        if left_out:
            pairs.append((theirs, ours, MixturePair.MIXTURE_SECOND))
        for one, other, pair in pairs:
            found = hockey_sticks(one, other, stds, EPSILONS)
            for epsilon, leaked in zip(EPSILONS, found, strict=True):
                if leaked > 1e-7:
                    certified = MixtureDivergence(mixture, pair, epsilon, ROUGH).delta(epsilon)
                    worst = max(worst, leaked / certified)
    return worst


class TestSoundness:
    def test_no_instance_leaks_more(self):
        assert 0.8 < worst_share(40, seed=0) <= 1.0

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 21))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert worst_share(250, seed) <= 1.0

    @pytest.mark.parametrize("lowered", LOWERED)
    def test_the_search_notices_what_is_charged_too_little(self, lowered):
        assert worst_share(40, 0, lowered) > 1.05

    def test_the_search_notices_noise_that_is_used_twice(self, monkeypatch):
        monkeypatch.setattr(EndWindows, "reserved", property(lambda windows: NOTHING_SPENT))
        assert worst_share(40, seed=0) > 1.05

    def test_participations_before_the_last_one_count(self):
        """All steps keep what they got, for five epochs of two batches."""
        shape, ratio = (2, 10), 1.0
        mixture = positions_of(arranged(li.BallsAndBins, shape, ratio, 1.0)).mixture(1, 0.9)
        added = np.tile([ratio, 0.0], (10, 1))
        ours, stds = last_iterates(li.BallsAndBins, shape, np.ones((10, 2)), added)
        (leaked,) = hockey_sticks(ours, -ours, stds, [2.0])
        without = replace(mixture, earlier_mus=np.zeros(1))
        enough, less = (
            MixtureDivergence(one, MixturePair.MIRRORED, 2.0, ROUGH).delta(2.0)
            for one in (mixture, without)
        )
        assert less < leaked <= enough


class TestTightness:
    PLAIN, WINDOWED = (
        f"random-order/balls-and-bins/{name}" for name in ("mixture", "windowed-mixture")
    )

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("adjacency, most", [("replace", 100.0), ("zero-out", 50.0)])
    def test_below_the_mixture_without_windows_and_near_the_truth(self, rule, adjacency, most):
        loss = li.Loss(smoothness=1.0, regulariser=1e-4, lipschitz=50.0)
        run = described(rule(60_000, 256), 4_687, loss=loss, sensitivity=most, adjacency=adjacency)
        report = li.account(run, bounds=[self.PLAIN, self.WINDOWED])
        assert report.all[self.WINDOWED].epsilon(1e-6) < 0.98 * report.all[self.PLAIN].epsilon(1e-6)
        assert 1.0 <= report.epsilon(1e-6) / report.lower.epsilon(1e-6) < 1.15

    def test_gradients_far_above_the_noise_overflow_in_silence(self):
        """Warnings are errors here."""
        loss = li.Loss(smoothness=1.0, lipschitz=300.0)
        run = described(
            li.BallsAndBins(4_000, 100), 40, loss=loss, sensitivity=300.0, step_size=0.5
        )
        assert li.account(run).epsilon(1e-5) > 1.0

    def test_far_from_its_epsilon_nothing_is_certified(self):
        mixture = positions_of(arranged(li.BallsAndBins, (4, 4), 1.0, 1.0)).mixture(2, 0.5)
        divergence = MixtureDivergence(mixture, MixturePair.MIRRORED, 1.0, ROUGH)
        assert divergence.delta(0.7) == divergence.delta(1.3) == 1.0 > divergence.delta(1.0)
