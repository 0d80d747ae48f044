"""Poisson batches whose rate is not the divisor over the number of examples."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom, norm

import lastiterate as li

DELTA = 1e-5
LAST = ("random-order/poisson", "random-order/poisson/hidden-participations")
EVERY = "composition/sampled"


def run_of(rule, *, steps, smoothness=0.25, regulariser=0.01, **changes):
    loss = li.Loss(smoothness=smoothness + regulariser, regulariser=regulariser, lipschitz=1.0)
    stated = {"loss": loss, "clip_norm": 1.0, "noise_multiplier": 1.0, "step_size": 0.5}
    return li.TrainingRun.from_dp_sgd(batches=rule, steps=steps, **stated | changes)


def exact_deltas(epsilon, *, steps, rate, ratio):
    """Of losses whose gradients are constant: x is a sum, and the example's part is binomial."""
    grid = np.linspace(-14.0, 14.0 + steps * ratio / math.sqrt(steps), 200_001)
    counts = np.arange(steps + 1)
    means = counts * ratio / math.sqrt(steps)
    weights = binom.pmf(counts, steps, rate)
    with_it = sum(w * norm.pdf(grid - m) for w, m in zip(weights, means, strict=True))
    without = norm.pdf(grid)
    for one, other in ((with_it, without), (without, with_it)):
        yield float(np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0.0), grid))


class TestSoundness:
    @pytest.mark.parametrize("rate", [0.02, 0.6, 0.95])
    @pytest.mark.parametrize("steps", [1, 2, 5])
    @pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.5])
    def test_no_bound_is_below_an_exact_instance(self, rate, steps, epsilon):
        """The divisor says 1/10, which is not the rate."""
        rule = li.PoissonSampled(examples=10, batch_size=1, sample_rate=rate)
        run = run_of(rule, steps=steps, smoothness=0.0, regulariser=0.0)
        truth = max(exact_deltas(epsilon, steps=steps, rate=rate, ratio=1.0))
        for id_ in (*LAST, EVERY):
            certified = li.account(run, bounds=id_).delta(epsilon)
            assert certified >= truth * (1.0 - 1e-6)
        if steps == 1:
            assert li.account(run).delta(epsilon) <= truth * 1.01 + 1e-9

    def test_lower_bounds_are_below(self):
        run = run_of(li.PoissonSampled(5_000, 40, sample_rate=1 / 98), steps=300)
        report = li.account(run)
        assert 0.0 < report.lower.epsilon(DELTA) <= report.epsilon(DELTA)

    def test_batches_too_large_for_the_step_size_are_charged(self):
        """On average 500 examples, their sum divided by 50: such steps expand."""
        large = li.PoissonSampled(1_000, 50, sample_rate=0.5)
        run = run_of(large, steps=50, smoothness=1.0, step_size=1.0)
        assert all(li.account(run, bounds=id_).delta(1.0) == 1.0 for id_ in LAST)
        assert li.account(run).bound.startswith("composition/")


class TestTightness:
    @pytest.mark.parametrize("id_", [*LAST, EVERY])
    def test_as_many_examples_as_give_the_rate_give_the_same(self, id_):
        stated = run_of(li.PoissonSampled(50_000, 510, sample_rate=1 / 98), steps=980)
        usual = run_of(li.PoissonSampled(98 * 510, 510), steps=980)
        found = [li.account(one, bounds=id_).epsilon(DELTA) for one in (stated, usual)]
        assert found[0] == pytest.approx(found[1], rel=1e-9)

    def test_composition_is_that_of_dp_accounting(self):
        step = dp_accounting.PoissonSampledDpEvent(1 / 98, dp_accounting.GaussianDpEvent(1.0))
        other = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        other.compose(dp_accounting.SelfComposedDpEvent(step, 2_940))
        run = run_of(li.PoissonSampled(50_000, 510, sample_rate=1 / 98), steps=2_940)
        certified = li.account(run, bounds=EVERY).epsilon(DELTA)
        assert certified == pytest.approx(other.get_epsilon(DELTA), rel=2e-3)

    def test_persons(self):
        stated = run_of(
            li.PoissonSampled(50_000, 510, sample_rate=1 / 98), steps=98, examples_per_person=2
        )
        usual = stated.replace(batches=li.PoissonSampled(98 * 510, 510))
        for id_ in (*LAST, EVERY):
            found = [li.account(one, bounds=id_).epsilon(DELTA) for one in (stated, usual)]
            assert found[0] == pytest.approx(found[1], rel=1e-9)
