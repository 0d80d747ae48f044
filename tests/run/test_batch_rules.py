"""Batch rules: their laws of batches, runs that several of them describe, and Poisson rates."""

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest

import lastiterate as li
from lastiterate.run.batch_rules import same_batches
from lastiterate.run.batch_rules.base import RULES
from tests.reference.draws import outcomes
from tests.slow import slow


def law(rule, steps):
    """The probability of every sequence of batches, each a set of examples."""

    def draw(source):
        order = rule.arrangement(source)
        examples = np.arange(rule.examples) if order is None else order
        batches = islice(rule.selections(source), steps)
        return tuple(frozenset(examples[batch].tolist()) for batch in batches)

    found = Counter()
    for batches, probability in outcomes(draw):
        found[batches] += probability
    return found


CASES = [
    (li.BalancedSampled(4, 2, epochs=1), 3),
    (li.BalancedSampled(3, 1, epochs=1), 4),
    (li.BalancedSampled(2, 2, epochs=3), 4),
    (li.PoissonSampled(3, 3), 2),
    (li.SampledWithoutReplacement(3, 3), 2),
    (li.Cyclic(3, 3), 2),
    (li.ShuffledOnce(3, 3), 2),
    (li.ShuffledEachEpoch(3, 3), 2),
    (li.BallsAndBins(3, 3), 2),
    (li.BallsAndBinsEachEpoch(3, 3), 2),
    (li.ShuffledEachEpoch(5, 2), 2),
    (li.ShuffledEachEpoch(4, 1), 3),
    (li.BallsAndBinsEachEpoch(3, 1), 3),
    (li.BallsAndBinsEachEpoch(3, 2), 1),
    (li.ShuffledBlocksEachEpoch(4, 2), 2),
    (li.ShuffledBlocksOnce(4, 2), 1),
]


@pytest.mark.parametrize("rule, steps", CASES, ids=str)
def test_have_one_law(rule, steps):
    rules = same_batches(rule, steps)
    assert rule in rules
    assert len(rules) > 1
    for other in rules:
        assert law(other, steps) == law(rule, steps)
        assert same_batches(other, steps)[0] == rules[0]


@pytest.mark.parametrize(
    "rule, steps",
    [
        (li.BalancedSampled(4, 2, epochs=2), 3),
        (li.BalancedSampled(5, 2, epochs=1), 3),
        (li.PoissonSampled(3, 3, sample_rate=0.5), 2),
        (li.PoissonSampled(4, 2, sample_rate=1.0), 2),
        (li.ShuffledEachEpoch(4, 2), 3),
        (li.BallsAndBins(4, 2), 3),
        (li.FixedOrder(3, 3, positions=[1]), 2),
        (li.ShuffledOnce(5, 3), 2),
    ],
    ids=str,
)
def test_others_are_alone(rule, steps):
    assert same_batches(rule, steps) == (rule,)


def run(batches, steps, **others):
    described = {
        "loss": li.Loss(smoothness=1.0, regulariser=0.01, lipschitz=1.0), "sensitivity": 1.0,
        "step_size": 1.0, "noise_std": 0.1, "adjacency": "zero-out",
    }  # fmt: skip
    return li.TrainingRun(batches=batches, steps=steps, **described | others)


def assert_one_guarantee(one, other):
    assert one.epsilon(1e-5) == other.epsilon(1e-5)
    assert one.lower.epsilon(1e-5) == other.lower.epsilon(1e-5)


@pytest.mark.parametrize(
    "one, other, steps",
    [
        (li.BallsAndBinsEachEpoch(40, 10), li.BalancedSampled(40, 10, epochs=1), 10),
        (li.FullBatch(100), li.PoissonSampled(100, 100), 7),
        (li.FullBatch(100), li.BalancedSampled(100, 100, epochs=3), 7),
        (li.ShuffledOnce(200, 10), li.ShuffledEachEpoch(200, 10), 15),
    ],
    ids=str,
)
@pytest.mark.parametrize("persons", [1, slow(2)])
def test_have_one_epsilon(one, other, steps, persons):
    reports = [li.account(run(rule, steps, examples_per_person=persons)) for rule in (one, other)]
    assert_one_guarantee(*reports)
    assert reports[1].run.batches == other
    assert li.TrainingRun.from_json(reports[1].run.to_json()) == reports[1].run


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_a_schedule_of_equal_numbers_is_a_number(rule):
    if rule.from_sizes:
        batches = rule.of_sizes(200, None if rule is li.FullBatch else 10)
    else:
        batches = li.FixedOrder(200, 10, positions=[3])
    number = run(batches, 40, momentum=0.5)
    listed = run(
        batches, 40, step_size=(1.0,) * 40, noise_std=np.full(40, 0.1), momentum=[0.5] * 40
    )
    assert listed == number
    assert hash(listed) == hash(number)
    assert listed.to_json() == number.to_json()
    assert repr(listed) == repr(number)
    assert run(batches, 40, momentum=[0.0] * 40) == run(batches, 40)


def test_a_schedule_of_other_length_is_refused_all_the_same():
    with pytest.raises(li.InvalidParameter, match="step_size"):
        run(li.Cyclic(200, 10), 40, step_size=(1.0,) * 39)


@pytest.mark.parametrize(
    "average", [li.TailAverage(1), li.ExponentialAverage(0.0), li.ExponentialAverage(0.0, False)]
)
def test_an_average_of_the_last_iterate_is_the_last_iterate(average):
    rule = li.ShuffledEachEpoch(200, 10)
    assert run(rule, 40, average=average) == run(rule, 40)
    assert run(rule, 40, average=li.TailAverage(2)) != run(rule, 40)


EVERY = range(2, 10)  # steps with a predecessor
EACH = li.ShuffledEachEpoch(40, 10)


@pytest.mark.parametrize(
    "changes, steps",
    [
        ({"momentum": 0.9}, 1),
        ({"momentum": 0.9, "dampening": 0.5}, 1),
        ({"momentum": 0.9, "buffer_resets": EVERY}, 9),
        ({"momentum": 0.9, "dampening": 0.5, "buffer_resets": EVERY}, 9),
        ({"momentum": np.linspace(0.1, 0.9, 9), "buffer_resets": EVERY}, 9),
        ({"average": li.ExponentialAverage(0.5)}, 1),
        ({"momentum": 0.9, "average": li.ExponentialAverage(0.5)}, 1),
    ],
)
def test_steps_that_nothing_changes_are_plain_steps(changes, steps):
    plain = run(EACH, steps)
    same = plain.replace(**changes)
    assert same != plain  # it may be given more steps
    report = li.account(same)
    assert_one_guarantee(report, li.account(plain))
    assert "epsilon" in str(report)


@pytest.mark.parametrize(
    "changes, steps",
    [
        ({"momentum": 0.9, "nesterov": True}, 1),
        ({"momentum": 0.9, "nesterov": True, "buffer_resets": EVERY}, 9),
        ({"momentum": 0.9, "buffer_resets": range(3, 10)}, 9),
        ({"average": li.ExponentialAverage(0.5, False)}, 1),
    ],
)
def test_other_steps_are_not(changes, steps):
    assert not any(same.has_plain_steps for same in run(EACH, steps, **changes).descriptions)


def test_more_steps_have_their_momentum_and_average():
    for changes in ({"momentum": 0.9}, {"average": li.ExponentialAverage(0.5)}):
        one = run(li.Cyclic(200, 10), 1, **changes).replace(steps=40)
        assert one == run(li.Cyclic(200, 10), 40, **changes)
        assert not any(same.has_plain_steps for same in one.descriptions)


@pytest.mark.parametrize(
    "schedule, adjacency", [("noise_std", "replace"), slow("step_size", "zero-out")]
)
def test_a_schedule_has_one_epsilon(schedule, adjacency):
    changes = {schedule: np.linspace(0.1, 0.15, 5), "adjacency": adjacency}
    rules = li.BallsAndBinsEachEpoch(40, 10), li.BalancedSampled(40, 10, epochs=1)
    bins, balanced = (li.account(run(rule, 5, **changes)).epsilon(1e-5) for rule in rules)
    assert bins == balanced


RULE = li.PoissonSampled(50_000, 510, sample_rate=1 / 98)


class RandomSource:
    """Notes what it is asked for."""

    def each_with_probability(self, count, numerator, denominator, /):
        self.asked = count, numerator / denominator
        return np.arange(3)


class TestPoissonRate:
    def test_the_rate_is_what_is_drawn_with(self):
        for rule, rate in ((RULE, 1 / 98), (li.PoissonSampled(50_000, 500), 0.01)):
            chance = RandomSource()
            rule.sample_batch(chance)
            assert chance.asked == (50_000, rate)
            assert rule.probability == rule.share == rate

    def test_a_pass(self):
        assert RULE.steps_per_pass == 98
        assert li.PoissonSampled(50_000, 512).steps_per_pass == 98
        assert li.PoissonSampled(10, 3, sample_rate=0.3).steps_per_pass == 4
        for count in range(1, 300):
            assert li.PoissonSampled(1_000, 7, sample_rate=1 / count).steps_per_pass == count

    def test_the_usual_rate_is_none_of_its_own(self):
        assert li.PoissonSampled(120, 20, sample_rate=1 / 6) == li.PoissonSampled(120, 20)
        assert li.PoissonSampled(120, 20, sample_rate=0.1) != li.PoissonSampled(120, 20)

    @pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan, math.inf, "half"])
    def test_refused_rates(self, rate):
        with pytest.raises((ValueError, TypeError), match="sample_rate must be"):
            li.PoissonSampled(120, 20, sample_rate=rate)

    def test_it_is_written_and_read(self):
        run = li.TrainingRun.from_dp_sgd(
            batches=RULE, clip_norm=1.0, noise_multiplier=1.0, epochs=30, step_size=0.5
        )
        assert run.steps == 2_940
        assert li.TrainingRun.from_json(run.to_json()) == run
        assert li.TrainingRun.from_toml(run.to_toml()) == run
        assert "probability 0.0102041" in RULE.described()
        assert "0.01020408163265306" in RULE.stated(secret=True)
        assert "sample_rate" not in run.replace(batches=li.PoissonSampled(120, 20)).to_json()

    def test_other_sizes_have_another_rate(self):
        """A rate that was stated for 50,000 examples says nothing of 100,000."""
        run = li.TrainingRun.from_dp_sgd(
            batches=RULE, batch_size=1_000, clip_norm=1.0, noise_multiplier=1.0, epochs=1
        )
        assert run.batches == li.PoissonSampled(50_000, 1_000)
