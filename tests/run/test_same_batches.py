"""One run, several descriptions: the same law of batches, and the same guarantee."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

import lastiterate as li
from lastiterate.run.batch_rules import same_batches
from lastiterate.run.batch_rules.base import RULES
from tests.reference.draws import outcomes


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
    loss = li.Loss(smoothness=1.0, regulariser=0.01, lipschitz=1.0)
    described = {
        "loss": loss,
        "sensitivity": 1.0,
        "batches": batches,
        "steps": steps,
        "step_size": 1.0,
        "noise_std": 0.1,
        "adjacency": "zero-out",
    }
    return li.TrainingRun(**described | others)


@pytest.mark.parametrize(
    "one, other, steps",
    [
        (li.BallsAndBinsEachEpoch(200, 10), li.BalancedSampled(200, 10, epochs=1), 50),
        (li.FullBatch(100), li.PoissonSampled(100, 100), 7),
        (li.FullBatch(100), li.BalancedSampled(100, 100, epochs=3), 7),
        (li.ShuffledOnce(200, 10), li.ShuffledEachEpoch(200, 10), 15),
    ],
    ids=str,
)
@pytest.mark.parametrize("persons", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_have_one_epsilon(one, other, steps, persons):
    reports = [li.account(run(rule, steps, examples_per_person=persons)) for rule in (one, other)]
    assert reports[0].epsilon(1e-5) == reports[1].epsilon(1e-5)
    assert reports[0].lower.epsilon(1e-5) == reports[1].lower.epsilon(1e-5)
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


EVERY = range(2, 46)  # steps with a predecessor
PLAIN = [
    ({"momentum": 0.9}, 1),
    ({"momentum": 0.9, "dampening": 0.5}, 1),
    ({"momentum": 0.9, "buffer_resets": EVERY}, 45),
    ({"momentum": 0.9, "dampening": 0.5, "buffer_resets": EVERY}, 45),
    ({"momentum": np.linspace(0.1, 0.9, 45), "buffer_resets": EVERY}, 45),
    ({"average": li.ExponentialAverage(0.5)}, 1),
    ({"momentum": 0.9, "average": li.ExponentialAverage(0.5)}, 1),
]


@pytest.mark.parametrize("changes, steps", PLAIN)
def test_steps_that_nothing_changes_are_plain_steps(changes, steps):
    plain = run(li.ShuffledEachEpoch(200, 10), steps)
    same = plain.replace(**changes)
    assert same != plain  # it may be given more steps
    one, other = li.account(same), li.account(plain)
    assert one.epsilon(1e-5) == other.epsilon(1e-5)
    assert one.lower.epsilon(1e-5) == other.lower.epsilon(1e-5)
    assert "epsilon" in str(one)


NOT_PLAIN = [
    ({"momentum": 0.9, "nesterov": True}, 1),
    ({"momentum": 0.9, "nesterov": True, "buffer_resets": EVERY}, 45),
    ({"momentum": 0.9, "buffer_resets": range(3, 46)}, 45),
    ({"average": li.ExponentialAverage(0.5, False)}, 1),
]


@pytest.mark.parametrize("changes, steps", NOT_PLAIN)
def test_other_steps_are_not(changes, steps):
    one = run(li.ShuffledEachEpoch(200, 10), steps, **changes)
    assert not any(same.has_plain_steps for same in one.descriptions)


def test_more_steps_have_their_momentum_and_average():
    for changes in ({"momentum": 0.9}, {"average": li.ExponentialAverage(0.5)}):
        one = run(li.Cyclic(200, 10), 1, **changes).replace(steps=40)
        assert one == run(li.Cyclic(200, 10), 40, **changes)
        assert not any(same.has_plain_steps for same in one.descriptions)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("schedule", ["noise_std", "step_size"])
def test_a_schedule_has_one_epsilon(schedule, adjacency):
    changes = {schedule: np.linspace(0.1, 0.15, 45), "adjacency": adjacency}
    rules = li.BallsAndBinsEachEpoch(200, 10), li.BalancedSampled(200, 10, epochs=1)
    bins, balanced = (li.account(run(rule, 45, **changes)).epsilon(1e-5) for rule in rules)
    assert bins == balanced
