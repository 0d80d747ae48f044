"""The rate of Poisson batches, and the number by which their sums are divided."""

import math

import numpy as np
import pytest

import lastiterate as li

RULE = li.PoissonSampled(50_000, 510, sample_rate=1 / 98)


class RandomSource:
    """Notes what it is asked for."""

    def each_with_probability(self, count, numerator, denominator, /):
        self.asked = count, numerator / denominator
        return np.arange(3)


def test_the_rate_is_what_is_drawn_with():
    for rule, rate in ((RULE, 1 / 98), (li.PoissonSampled(50_000, 500), 0.01)):
        chance = RandomSource()
        rule.sample_batch(chance)
        assert chance.asked == (50_000, rate)
        assert rule.probability == rule.share == rate


def test_a_pass():
    assert RULE.steps_per_pass == 98
    assert li.PoissonSampled(50_000, 512).steps_per_pass == 98
    assert li.PoissonSampled(10, 3, sample_rate=0.3).steps_per_pass == 4
    for count in range(1, 300):
        assert li.PoissonSampled(1_000, 7, sample_rate=1 / count).steps_per_pass == count


def test_the_usual_rate_is_none_of_its_own():
    assert li.PoissonSampled(120, 20, sample_rate=1 / 6) == li.PoissonSampled(120, 20)
    assert li.PoissonSampled(120, 20, sample_rate=0.1) != li.PoissonSampled(120, 20)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, math.inf, "half"])
def test_refused_rates(rate):
    with pytest.raises((ValueError, TypeError), match="sample_rate must be"):
        li.PoissonSampled(120, 20, sample_rate=rate)


def test_it_is_written_and_read():
    run = li.TrainingRun.from_dp_sgd(
        batches=RULE, clip_norm=1.0, noise_multiplier=1.0, epochs=30, step_size=0.5
    )
    assert run.steps == 2_940
    assert li.TrainingRun.from_json(run.to_json()) == run
    assert li.TrainingRun.from_toml(run.to_toml()) == run
    assert "probability 0.0102041" in RULE.described()
    assert "0.01020408163265306" in RULE.stated(secret=True)
    assert "sample_rate" not in run.replace(batches=li.PoissonSampled(120, 20)).to_json()


def test_other_sizes_have_another_rate():
    """A rate that was stated for 50,000 examples says nothing of 100,000."""
    run = li.TrainingRun.from_dp_sgd(
        batches=RULE, batch_size=1_000, clip_norm=1.0, noise_multiplier=1.0, epochs=1
    )
    assert run.batches == li.PoissonSampled(50_000, 1_000)
