"""Several models published in turn, against instances that are solved exactly."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

import lastiterate as li
from lastiterate.profile import GaussianProfile
from lastiterate.unlearn.sequential import report_on_all_models
from lastiterate.unlearn.unlearning import RequestSteps, run_of_retained_examples

DELTA = 1e-3


def run_of(rule, *, steps, release=0.0, curvature=0.2):
    return li.TrainingRun(
        loss=li.Loss(smoothness=curvature, strong_convexity=curvature), sensitivity=1.0,
        batches=rule, steps=steps, step_size=1.0, noise_std=0.5, release_noise_std=release,
    )  # fmt: skip


def losses_of_linear_runs(run, steps, order_of):
    """mu^2 of all models together, for each place: linear gradients, by hand.

    Between publications the last iterate is normal around what was published, moved by the
    example's own participations.
    """
    c, s = 1.0 - run.step_size * run.loss.strong_convexity, 1.0 / run.batches.batch_size
    own = (run.step_size * run.noise_std) ** 2
    found = np.zeros(run.batches.batches_per_epoch)
    begun = 0
    for many, release in steps:
        for place in range(found.size):
            seen = [order_of(begun + k) == place for k in range(many)]
            moved = sum(s * c ** (many - 1 - k) for k in range(many) if seen[k])
            spread = sum(own * c ** (2 * (many - 1 - k)) for k in range(many)) + release**2
            found[place] += moved**2 / spread
        begun += many
    return found


class TestPublicOrders:
    @pytest.mark.parametrize("steps", [12, 14, 3])
    def test_no_position_leaks_more_than_is_certified(self, steps):
        rule = li.Cyclic(examples=10, batch_size=2)
        run = run_of(rule, steps=steps, release=0.3)
        then = [run.replace(steps=k) for k in (1, 2, 7, 1)]
        whole = report_on_all_models(li.account(run), then)
        stages = [(one.steps, one.release_noise_std) for one in (run, *then)]
        exact = losses_of_linear_runs(run, stages, lambda step: step % 5)
        assert math.sqrt(exact.max()) <= whole.gdp() * (1 + 1e-12)

    def test_full_batches_are_exact(self):
        """By hand: squares of mu add up, each of a run from a known start."""
        run = run_of(li.Cyclic(examples=4, batch_size=4), steps=9, release=0.2)
        then = [run.replace(steps=k) for k in (2, 3)]
        stages = [(one.steps, one.release_noise_std) for one in (run, *then)]
        exact = losses_of_linear_runs(run, stages, lambda step: 0)
        assert report_on_all_models(li.account(run), then).gdp() == pytest.approx(
            math.sqrt(exact[0]), rel=1e-6
        )

    def test_those_seen_next_were_not_seen_last(self):
        run = run_of(li.Cyclic(examples=100, batch_size=2), steps=100, release=0.3)
        first = li.account(run)
        whole = report_on_all_models(first, [run.replace(steps=1)])
        assert whole.gdp() == pytest.approx(first.gdp(), rel=0.05)
        assert math.hypot(first.gdp(), li.account(run.replace(steps=1)).gdp()) > 1.3 * whole.gdp()


def exact_delta(laws, epsilon):
    """Of a model and one more, each a mixture of normal laws: by a grid of both."""
    grid = np.linspace(-9.0, 9.0, 721)
    cell = grid[1] - grid[0]
    p, q = (np.ones(1), np.ones(1))
    for weights, means in laws:
        still = norm.pdf(grid)
        moved = sum(w * norm.pdf(grid - m) for w, m in zip(weights, means, strict=True))
        p = np.outer(p, moved * cell).ravel()
        q = np.outer(q, still * cell).ravel()
    one = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
    return max(one, np.maximum(q - math.exp(epsilon) * p, 0.0).sum())


class TestSecretOrders:
    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_one_more_step_is_amplified_by_chance(self, rule):
        """The example is 0 or moves by s; trained one step, and one more: each hides its place."""
        run = run_of(rule(examples=40, batch_size=2), steps=1, release=0.4, curvature=1e-9)
        mu = 0.5 / math.hypot(0.5, 0.4)
        used = ["fixed-order", "random-order/shuffled"]
        whole = report_on_all_models(li.account(run, bounds=used), [run])
        law = ([0.05, 0.95], [mu, 0.0])
        for epsilon in (0.05, 0.2, 0.5):
            assert exact_delta([law, law], epsilon) <= whole.delta(epsilon)
        stage = run.batches.name.replace("shuffled-", "shuffled/average-")
        known = li.account(run, bounds=f"random-order/{stage}")
        assert whole.epsilon(DELTA) < known.epsilon(DELTA)

    def test_many_requests_compose_as_their_curves_do(self):
        run = run_of(li.ShuffledOnce(examples=20, batch_size=2), steps=30, release=0.5)
        used = ["fixed-order", "random-order/shuffled"]
        first, step = li.account(run, bounds=used), run.replace(steps=1)
        whole = report_on_all_models(first, [step] * 3)
        curves = [li.account(one, bounds=used[1]) for one in (run, step)]
        by_hand = curves[0].compose(*curves[1:] * 3)
        assert whole.epsilon(DELTA) == pytest.approx(by_hand.epsilon(DELTA), rel=3e-3)
        assert whole.followed == (3, 3)
        assert math.isfinite(whole.gdp())

    def test_losses_beyond_the_grid_are_composed_as_gaussian_ones(self):
        run = run_of(li.ShuffledOnce(examples=100, batch_size=2), steps=10).replace(noise_std=1e-4)
        first = li.account(run)
        assert report_on_all_models(first, [run]).gdp() == pytest.approx(
            math.hypot(*[first.gdp()] * 2)
        )


class TestOneRun:
    def test_of_somebody_in_all_is_exact_for_linear_gradients(self):
        """Full batches: the noise of each release goes on into what follows."""
        run = run_of(li.ShuffledOnce(examples=4, batch_size=4), steps=6, release=0.2)
        then = [RequestSteps(2, 0.7), RequestSteps(3, 0.1)]
        found = li.account(run_of_retained_examples(run, then)).gdp()
        c, spread, moved = 0.8, 0.0, 0.0
        for many, release in ((6, 0.2), (2, 0.7), (3, 0.1)):
            for _ in range(many):
                spread, moved = c * c * spread + 0.25, c * moved + 0.25
            spread += release**2
        assert found == pytest.approx(moved / math.sqrt(spread), rel=1e-6)

    def test_no_positions_are_worse_than_the_latest(self):
        rule = li.ShuffledOnce(examples=6, batch_size=2)
        run = run_of(rule, steps=5, release=0.3)
        then = [RequestSteps(1, 0.3), RequestSteps(2, 0.6)]
        certified = li.account(run_of_retained_examples(run, then)).gdp()
        worst = 0.0
        for first, *later in itertools.product(range(3), range(3), range(3)):
            seen = [k % 3 == first for k in range(5)]
            seen += [later[0] == 0, later[1] == 0, later[1] == 1]
            spread, moved = 0.0, 0.0
            for step, one in enumerate(seen):
                spread, moved = 0.64 * spread + 0.25, 0.8 * moved + 0.5 * one
                spread += {4: 0.3, 5: 0.3, 7: 0.6}.get(step, 0.0) ** 2
            worst = max(worst, moved / math.sqrt(spread))
        assert worst <= certified

    def test_projections_leave_the_noise_unused(self):
        run = run_of(li.ShuffledOnce(examples=6, batch_size=2), steps=5, release=0.3)
        inside = run.replace(domain=li.Ball(diameter=3.0))
        assert run_of_retained_examples(inside, [RequestSteps(1, 0.3)]).is_constant
        assert not run_of_retained_examples(run, [RequestSteps(1, 0.3)]).is_constant


def test_nothing_followed():
    report = li.account(run_of(li.Cyclic(examples=4, batch_size=2), steps=3))
    assert report_on_all_models(report, []) is report
    assert isinstance(report.profiles[0], GaussianProfile)
