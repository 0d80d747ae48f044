"""All iterates of balanced batches: integrals over the noise of four steps, and other batches."""

import numpy as np
import pytest

import lastiterate as li
from tests.reference.balanced_batches import adaptive_deltas, deltas
from tests.reference.random_allocation import deltas as deltas_of_one

BOUND = "composition/balanced"


def _run(batches, noise_multiplier=1.0, *, steps=None, adjacency="zero-out", **others):
    return li.TrainingRun.from_dp_sgd(
        loss=li.Loss(convex=False),
        batches=batches,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        steps=batches.steps_per_draw if steps is None else steps,
        step_size=0.1,
        adjacency=adjacency,
        **others,
    )


def _profile(run):
    return li.account(run, bounds=BOUND)


class TestSoundness:
    @pytest.mark.parametrize("ratio", [0.3, 0.8, 1.5, 3.0])
    @pytest.mark.parametrize("size", [10, 20])
    def test_no_less_than_the_integral_over_the_noise(self, ratio, size):
        """Two of four steps (batches of half of the examples), or all four."""
        rule = li.BalancedSampled(20, size, epochs=4 * size // 20)
        assert rule.steps_per_draw == 4
        report = _profile(_run(rule, 1 / ratio))
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            exact = max(deltas(ratio, 4 * size // 20, epsilon)) - 1e-13  # what the integral is off
            assert exact <= report.delta(epsilon)

    def test_no_dependence_on_earlier_results_leaks_more(self):
        rule, generator = li.BalancedSampled(20, 10, epochs=2), np.random.default_rng(3)
        report = _profile(_run(rule))
        for _ in range(8):
            slopes, offsets = generator.uniform(-3, 3, (2, 4))

            def shift(t, noise, slopes=slopes, offsets=offsets):
                return np.tanh(slopes[t] * sum(noise, 0.0) + offsets[t])

            epsilon = float(generator.uniform(0.0, 2.0))
            leaks = adaptive_deltas(shift, 2, epsilon)
            assert max(leaks) <= report.delta(epsilon) * (1 + 1e-6)

    def test_a_cut_draw_costs_no_more_than_a_whole_one(self):
        rule = li.BalancedSampled(20, 10, epochs=2)
        cut, whole = _profile(_run(rule, steps=3)), _profile(_run(rule))
        more = _profile(_run(rule, steps=5))
        assert cut.epsilon(1e-5) == whole.epsilon(1e-5) < more.epsilon(1e-5)

    def test_noise_that_varies_costs_no_less_than_the_most_of_it(self):
        rule = li.BalancedSampled(200, 10, epochs=2)
        run = _run(rule, steps=20 * rule.steps_per_draw)
        noise = np.linspace(2.0, 1.0, run.steps) * float(np.max(run.noise_std))
        least, most = (_profile(run.replace(noise_std=float(f(noise)))) for f in (np.min, np.max))
        varied = _profile(run.replace(noise_std=noise.tolist())).epsilon(1e-6)
        assert most.epsilon(1e-6) < varied < least.epsilon(1e-6)

    def test_the_least_noise_is_that_of_a_whole_draw(self):
        rule = li.BalancedSampled(200, 10, epochs=2)
        ratios = np.repeat([4.0, *np.linspace(0.3, 0.31, 13)], 40)[:521]
        run = _run(rule, steps=521).replace(noise_std=(1.0 / (10.0 * ratios)).tolist())
        assert _profile(run).epsilon(1e-5) >= _profile(_run(rule, 1 / 4.0)).epsilon(1e-5)

    def test_an_example_that_is_replaced(self):
        rule = li.BalancedSampled(20, 10, epochs=2)
        one = _profile(_run(rule, 2.0))
        other = _profile(_run(rule, 2.0, adjacency="replace"))
        assert one.epsilon(1e-5) < other.epsilon(1e-5)


class TestTightness:
    def test_one_of_every_epoch_is_balls_and_bins(self):
        balanced = _profile(_run(li.BalancedSampled(1_000, 10, epochs=1), steps=300))
        bins = _run(li.BallsAndBinsEachEpoch(1_000, 10), steps=300)
        other = li.account(bins, bounds="composition/balls-and-bins")
        assert balanced.epsilon(1e-6) == pytest.approx(other.epsilon(1e-6), rel=1e-9)
        exact = max(deltas_of_one([1.0] * 2, 0.5, 0.5))
        report = _profile(_run(li.BalancedSampled(20, 10, epochs=1)))
        assert exact * (1 - 3e-5) <= report.delta(0.5) <= exact * 1.001

    @pytest.mark.parametrize("ratio", [0.3, 1.0])
    def test_near_the_integral_over_the_noise(self, ratio):
        report = _profile(_run(li.BalancedSampled(20, 10, epochs=2), 1 / ratio))
        exact = max(deltas(ratio, 2, 0.2))
        assert report.delta(0.2) <= 1.6 * exact

    @pytest.mark.parametrize("noise", [0.5, 0.7, 1.0, 2.0, 5.0])
    @pytest.mark.parametrize(
        "examples, size, epochs",
        [(1_000, 10, 10), (60_000, 600, 20), (50_000, 500, 30), (100, 50, 5)],
    )
    def test_never_above_poisson_batches_of_the_same_expected_size(
        self, examples, size, epochs, noise
    ):
        run = _run(li.BalancedSampled(examples, size, epochs), noise)
        poisson = li.account(run.replace(batches=li.PoissonSampled(examples, size)))
        fixed = li.account(run, bounds="composition/fixed-order")
        for delta in (1e-3, 1e-5, 1e-8):
            found = _profile(run).epsilon(delta)
            assert found <= poisson.epsilon(delta)
            assert found <= fixed.epsilon(delta) * 1.001


class TestRefusals:
    def test_released_batches(self):
        run = _run(li.BalancedSampled(100, 10), releases="last-iterate-and-order")
        assert "secret" in str(li.account(run).unmet[BOUND][0])

    @pytest.mark.parametrize("epochs", [0, -1, 1.5, float("nan"), "2"])
    def test_numbers_of_epochs(self, epochs):
        with pytest.raises(li.InvalidParameter, match="epochs"):
            li.BalancedSampled(100, 10, epochs)
