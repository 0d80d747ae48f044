"""Sums of drawn terms, and the last step beside them: below exact instances, and near."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import lastiterate as li
from lastiterate.lower_bounds import drawn_sums as geometric_draws
from lastiterate.lower_bounds import quadratics as stationary_quadratics
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.drawn_sums import below, threshold_profile, two_statistics_profile
from lastiterate.lower_bounds.last_step import stretches
from lastiterate.run.loss import linear_gradients
from tests.reference import all_orders, noisy_line
from tests.slow import slow, slow_if

QUADRATIC, LAST_STEP = LOWER_BOUNDS["lower/quadratic"], LOWER_BOUNDS["lower/last-step"]


def run_of(batches, *, r=1.0, curvature=0.0, steps, adjacency="replace", **changes):
    """Step, noise and smoothness 1: an arrival is r, and a step may forget."""
    penalty = curvature if adjacency == "zero-out" else 0.0
    settings = {
        "loss": li.Loss(
            smoothness=max(1.0, curvature), strong_convexity=curvature, regulariser=penalty
        ),
        "sensitivity": r * batches.batch_size, "step_size": 1.0, "noise_std": 1.0,
        "adjacency": adjacency,
    }  # fmt: skip
    return li.TrainingRun(batches=batches, steps=steps, **{**settings, **changes})


def flattest(run):
    gap = run.loss.strong_convexity
    whole = stationary_quadratics.hidden_steps(run, gap).whole
    unit = stationary_quadratics.shift_over_deviation(run, gap)
    return [
        threshold_profile(whole, unit * ours, unit * theirs)
        for one in linear_gradients(run)
        for ours, theirs in [one.moves(exact_size=run.batches.exact_size)]
    ]


def assert_shown(profile, epsilons, leaks, *, over, under, off=0.0):
    """Its deltas are those that leak, but for these shares, and for `off`."""
    for epsilon, leak in zip(epsilons, leaks, strict=True):
        assert leak * under - 10 * off <= profile.delta(epsilon) <= leak * (1 + over) + off


class TestAgainstEveryOrder:
    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize(
        "examples, size, steps", [(3, 1, 6), (4, 1, 6), (5, 2, 4), (4, 2, 5), (3, 1, 2), (4, 1, 1)]
    )
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_shuffled(self, each, examples, size, steps, adjacency):
        rule = li.ShuffledEachEpoch if each else li.ShuffledOnce
        run = run_of(rule(examples, size), r=1.5, curvature=0.2, steps=steps, adjacency=adjacency)
        seen = all_orders.epochs_seen(examples, size, steps, each)
        factors, epsilons = np.full(steps, 0.8), (0.0, 0.3, 1.0)
        for profile, others in zip(flattest(run), (0.0, -1.5 * size), strict=False):
            worlds = []
            for own in (1.5 * size, 0.0):
                added = np.full((examples, steps), others)
                added[0] = own
                worlds.append(all_orders.means(seen, factors, added))
            (ours, spread), (theirs, _) = worlds
            leaks = all_orders.hockey_sticks(ours, theirs, spread, epsilons)
            assert_shown(profile, epsilons, leaks, over=1e-5, under=0.995, off=1e-7)

    @pytest.mark.parametrize("rule", [li.SampledWithoutReplacement, li.PoissonSampled])
    @pytest.mark.parametrize("curvature", [0.0, 0.3])
    def test_drawn_each_step(self, rule, curvature):
        run = run_of(rule(5, 2), r=1.2, curvature=curvature, steps=7, adjacency="zero-out")
        ways, epsilons = np.array(list(product((0, 1), repeat=7))), (0.0, 0.5, 1.5)
        chances = np.prod(np.where(ways, 0.4, 0.6), axis=1)
        weights = (1.0 - curvature) ** np.arange(6, -1, -1)
        sums, spread = 1.2 * ways @ weights, math.sqrt(weights @ weights)
        found = flattest(run)
        assert len(found) == (2 if rule.exact_size else 1)
        for profile, ours in zip(found, (1.0, 2.0), strict=False):
            pair = ours * sums, (ours - 1.0) * sums
            leaks = all_orders.hockey_sticks(*pair, spread, epsilons, chances)
            assert_shown(profile, epsilons, leaks, over=1e-5, under=0.995, off=1e-7)

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("r", [0.8, 2.0, 3.5])
    def test_the_last_step_beside_the_sum(self, each, r):
        """Two coordinates: what all but the last step left, and the last step's own move."""
        rule = li.ShuffledEachEpoch if each else li.ShuffledOnce
        run = run_of(rule(4, 1), r=r, curvature=0.1, steps=7)
        seen = all_orders.epochs_seen(4, 1, 7, each)
        weights = 0.9 ** np.arange(6, -1, -1)
        taken = (seen == 0).any(axis=2)
        x = r * taken[:, :-1] @ weights[:-1] / math.sqrt(weights @ weights)
        pairs, counts = np.unique(
            np.round(np.column_stack([x, taken[:, -1]]), 12), axis=0, return_counts=True
        )
        edges = np.linspace(-8.0, 8.0 + max(r, x.max()), 400)

        def cells(mean):
            return np.diff(np.concatenate([[0.0], ndtr(edges - mean), [1.0]]))

        ours = sum(
            n / len(seen) * np.multiply.outer(cells(mean), cells(r * last))
            for (mean, last), n in zip(pairs, counts, strict=True)
        )
        theirs = np.multiply.outer(cells(0.0), cells(0.0))
        epsilons = (0.2, 1.0, 2.5)
        leaks = [noisy_line.both_ways(ours, theirs, epsilon) for epsilon in epsilons]
        profile = LAST_STEP.profile(run)  # the reference is coarse
        assert_shown(profile, epsilons, leaks, over=2e-3, under=0.97, off=1e-9)

    @pytest.mark.parametrize("r, p", [(2.0, 0.1), (3.0, 0.01)])
    def test_one_step_is_amplification_by_sampling(self, r, p):
        run = run_of(li.SampledWithoutReplacement(1_000, int(1_000 * p)), r=r, steps=1)
        epsilons, gaussian = (0.1, 1.0), li.GaussianProfile(r)
        leaks = [p * gaussian.delta(math.log1p(math.expm1(e) / p)) for e in epsilons]
        assert_shown(LAST_STEP.profile(run), epsilons, leaks, over=0.0, under=0.995)


class TestBoundedGradients:
    """Against densities that are pushed through the very losses."""

    SIZE = 400

    def admitted(self, rule, r, adjacency, penalty, steps):
        bound = r * self.SIZE * (1.0 if adjacency == "zero-out" else 0.5)
        loss = li.Loss(smoothness=1.0, regulariser=penalty, lipschitz=bound)
        batches = rule(10 * self.SIZE, self.SIZE)
        run = run_of(batches, r=r, steps=steps, adjacency=adjacency, loss=loss)
        most = stationary_quadratics.hidden_steps(run, 0.0).whole.most(1e-15)
        return run, bound, list(stretches(run, r, most))

    def compare(self, run, one, pair, over, under, off=0.0):
        """By the last step alone."""
        r, epsilons = run.sensitivity / self.SIZE, (0.3, 1.0, 2.0)
        ours, theirs = (r * (side + one.pull) for side in (one.bound, one.bound - 1.0))
        hidden = stationary_quadratics.hidden_steps(run, run.loss.regulariser)
        tails = one.tails(ours, theirs, 1.0)
        profile = two_statistics_profile(hidden, (0.0, 0.0), tails, last_in_sum=True)
        leaks = [noisy_line.both_ways(*pair, epsilon) for epsilon in epsilons]
        assert_shown(profile, epsilons, leaks, over=over, under=under, off=off)

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("penalty", [0.0, 0.2])
    @pytest.mark.parametrize("r", [2.0, 3.0])
    def test_exact_sizes(self, adjacency, penalty, r):
        rule = li.SampledWithoutReplacement
        run, bound, found = self.admitted(rule, r, adjacency, penalty, 2)
        assert len(found) == 2
        for one in found:
            pull = one.pull * r * self.SIZE
            if pull > 0.0 and not penalty:
                # One step along a constant gradient, and one across the stretch.
                middle, start, drift = bound, 0.0, pull
            else:
                middle = start = pull / penalty if penalty else 0.0
                drift = 0.0
            near = np.linspace(-16.0, 16.0, 641)

            def gradient(x, middle=middle, half=bound - pull, level=-pull):
                return noisy_line.others_gradient(
                    x, middle=middle, curvature=1.0 - penalty, half=half, level=level
                )

            pair = [
                noisy_line.last_law(
                    size=self.SIZE, lam=penalty, own=own, gradient=gradient, chance=0.1, sizes=None,
                    grids=[np.array([start]), middle + near, middle + drift + near],
                )
                # It adds what the others' pull against: gradients are descended.
                for own in (bound, bound - r * self.SIZE)
            ]  # fmt: skip
            self.compare(run, one, pair, over=1e-3, under=0.9, off=1e-8)

    @pytest.mark.parametrize("r", [slow(2.0), 3.0])
    def test_random_sizes(self, r):
        run, bound, (one,) = self.admitted(li.PoissonSampled, r, "zero-out", 0.0, 2)
        counts = np.arange(300, 501, 5)  # deltas hardly vary from one size to the next
        chances = binom.pmf(counts, 10 * self.SIZE - 1, 0.1)
        sizes = dict(zip(counts.tolist(), (chances / chances.sum()).tolist(), strict=True))
        near = np.linspace(-16.0, 16.0, 401)

        def gradient(x):
            return noisy_line.others_gradient(x, middle=0.0, curvature=1.0, half=bound, level=0.0)

        pair = [
            noisy_line.last_law(
                size=self.SIZE, lam=0.0, own=own, gradient=gradient, chance=0.1, sizes=sizes,
                grids=[np.zeros(1), near, near],
            )
            for own in (bound, 0.0)
        ]  # fmt: skip
        self.compare(run, one, pair, over=2e-3, under=0.3)

    def test_a_stretch_must_be_long_beside_the_noise(self):
        run, _, found = self.admitted(li.ShuffledOnce, 0.02, "zero-out", 0.0, 20)
        assert not found
        assert "times the noise" in str(LAST_STEP.unmet(run)[0])


class TestLongRuns:
    def test_weights_are_known_from_both_sides(self):
        def expected(part, weights):
            times = np.repeat(part.times, np.diff(part.first, append=part.low.size))
            return float((weights * part.chances) @ times)

        for gap, steps, length in product((0.0, 1e-4, 0.02, 1.0), (7, 1_003), (7, 100)):
            weights = np.where(np.arange(steps) == 0, 1.0, (1.0 - gap) ** np.arange(steps))
            exact = weights.sum() / length
            for hidden in (
                geometric_draws.drawn_each_step(gap, steps, 1.0 / length),
                geometric_draws.drawn_each_epoch(gap, steps, length, 1.0 / length),
                geometric_draws.drawn_once(gap, steps, length, 1.0 / length),
            ):
                low, high = (
                    expected(hidden.whole, w) for w in (hidden.whole.low, hidden.whole.high)
                )
                assert low <= exact <= high <= low + 2e-3 * exact
                # The last step's own share, and what the others add either way, make up the whole.
                others = hidden.last * expected(hidden.if_last, hidden.if_last.low)
                others += (1.0 - hidden.last) * expected(hidden.if_not, hidden.if_not.low)
                assert hidden.last + others == pytest.approx(exact, rel=2e-3)

    def test_a_linear_run_of_ten_million_steps_is_binomial(self):
        steps, p, r = 10_000_000, 1e-4, 1.0
        whole = geometric_draws.drawn_each_step(0.0, steps, p).whole
        places = np.linspace(-3.0, 4.0, 15)
        found = below(places, whole, r / math.sqrt(steps), above_truth=True)
        counts = np.arange(700, 1_301)
        known = ndtr(places[:, None] - r * counts / math.sqrt(steps)) @ binom.pmf(counts, steps, p)
        assert found == pytest.approx(known, abs=1e-9)

    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    @pytest.mark.parametrize("r, epochs", [(3.0, 1_000), (3.0, 100), (8.0, 3)])
    def test_results_far_apart(self, rule, r, epochs):
        """Rates far below what a difference from 1 can show."""
        run = run_of(rule(400, 10), r=r, steps=40 * epochs)
        report = li.account(run)
        for lower in report.lower_bounds.values():
            assert 5.0 < lower.epsilon(1e-6) <= report.epsilon(1e-6)

    def test_huge_sensitivities(self):
        run = run_of(li.ShuffledOnce(1_000, 10), r=1e6, curvature=0.1, steps=1_000)
        for bound in (QUADRATIC, LAST_STEP):
            assert bound.profile(run).epsilon(1e-5) >= 100.0

    @pytest.mark.parametrize(
        "rule, adjacency",
        [
            (li.ShuffledOnce, "zero-out"),
            (li.ShuffledEachEpoch, "replace"),
            slow(li.ShuffledOnce, "replace"),
            slow(li.ShuffledEachEpoch, "zero-out"),
        ],
    )
    @pytest.mark.parametrize("r", slow_if(lambda r: r != 1.0, [0.3, 1.0, 3.0]))
    @pytest.mark.parametrize("curvature, epochs", [slow(0.0, 1), (1e-4, 20), slow(1e-2, 3)])
    def test_certified_at_realistic_fractions(self, rule, adjacency, r, curvature, epochs):
        batches, steps = rule(2_500_000, 10_000), 250 * epochs
        run = run_of(batches, r=r, curvature=curvature, steps=steps, adjacency=adjacency)
        report = li.account(run)
        for delta in (1e-3, 1e-6, 1e-9):
            assert 0.0 < report.lower.epsilon(delta) <= report.epsilon(delta)

    def test_reference_values(self):
        """Those of a prototype that sums places one by one."""
        run = run_of(li.ShuffledOnce(1_000_000, 1_000), curvature=1e-4, steps=100_000)
        assert QUADRATIC.profile(run).epsilon(1e-6) == pytest.approx(0.5752, rel=2e-3)
        each = run.replace(batches=li.ShuffledEachEpoch(1_000_000, 1_000))
        assert QUADRATIC.profile(each).epsilon(1e-6) == pytest.approx(0.5749, rel=2e-3)
        assert LAST_STEP.profile(run.replace(sensitivity=3_000.0)).epsilon(1e-6) > 6.18


def test_steps_too_short_to_erase():
    run = run_of(li.ShuffledOnce(100, 10), steps=50, step_size=0.9)
    assert "step_size * smoothness = 0.9" in str(LAST_STEP.unmet(run)[0])
    assert not LAST_STEP.unmet(run.replace(step_size=1.0))


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"step_size": [1.0] * 49 + [0.5]}, "a schedule"),
        ({"loss": li.Loss(smoothness=1.0, convex=False)}, "convex=False"),
        ({"domain": li.Ball(3.0)}, "Ball"),
    ],
)
def test_refusals(changes, reason):
    run = run_of(li.ShuffledEachEpoch(100, 10), steps=50).replace(**changes)
    for bound in (LAST_STEP, QUADRATIC):
        assert any(reason in str(one) for one in bound.unmet(run))
