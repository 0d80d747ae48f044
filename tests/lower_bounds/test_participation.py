"""Participation as a chain of hidden states, against the enumeration of all batches."""

from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.errors import InvalidParameter
from lastiterate.lower_bounds.line import linear
from lastiterate.lower_bounds.participation import participation
from lastiterate.run.batch_rules.base import RULES, Resampling
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map


def rule_of(batches, steps):
    return li.TrainingRun(
        loss=li.Loss(), sensitivity=1.0, batches=batches, steps=steps, step_size=1.0, noise_std=1.0
    )


EPOCHS = [(0.3, [1, 0, 0]), (0.3, [0, 1, 0]), (0.3, [0, 0, 1]), (0.1, [0, 0, 0])]


@pytest.mark.parametrize(
    "batches, patterns",
    [
        (
            li.SampledWithoutReplacement(10, 3),
            [(0.3 ** sum(v) * 0.7 ** (5 - sum(v)), v) for v in product((0, 1), repeat=5)],
        ),
        (
            li.ShuffledOnce(10, 3),
            [(0.1, [0] * 7), *((0.3, [int(k % 3 == j) for k in range(7)]) for j in range(3))],
        ),
        (
            li.ShuffledEachEpoch(10, 3),
            [(a * b, x + y) for (a, x), (b, y) in product(EPOCHS, repeat=2)],
        ),
        (li.FixedOrder(4, 1, [2, 4]), [(1.0, [0, 1, 0, 1])]),
        (li.Cyclic(3, 1), [(1.0, [1, 0, 0, 1])]),
        (li.FullBatch(3), [(1.0, [1, 1, 1, 1])]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_is_the_mixture_over_all_batches(batches, patterns):
    steps, domain = len(patterns[0][1]), (-2.0, 2.5)
    step = exact.Step(linear(0.9), (linear(0.9), linear(0.9, 0.8)), 1.0, domain)
    chain = participation(rule_of(batches, steps))
    curve = exact.curve(exact.Pair(0.0, [step] * steps, chain))
    mixture = [
        (weight, Instance(0.0, tuple(
            Step(linear_map(0.9), linear_map(0.9, 0.8 * taken), 1.0, domain) for taken in seen
        )))
        for weight, seen in patterns
    ]  # fmt: skip
    other = exact_pair(mixture)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        assert curve.delta(epsilon).middle == pytest.approx(other.delta(epsilon), abs=1e-11)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_is_a_chain_of_the_positions_it_states(rule):
    """How often each step sees an example, from the rule's own word for it."""
    batches = rule.of_sizes(7, 3) if rule.from_sizes and rule.ordered else None
    batches = batches or (rule(7) if rule.from_sizes else rule(7, 3, (1, 4, 6)))
    chain = participation(rule_of(batches, 6))
    seen = chain.expected(6)
    if rule.resampling is Resampling.NEVER:
        assert set(np.flatnonzero(seen)) in [
            set(batches.participations(place, 6)) for place in range(batches.position_count(6))
        ]
        assert set(seen) <= {0.0, 1.0}
    else:
        assert seen == pytest.approx(np.full(6, batches.share))
    for k in range(6):
        assert sum(chain.step(k)).sum(axis=1) == pytest.approx(1.0)


def test_another_position():
    run = rule_of(li.Cyclic(3, 1), 7)
    assert participation(run, position=1).positions == {2, 5}
    with pytest.raises(InvalidParameter, match="position must be"):
        participation(run, position=3)


def test_a_cut_poisson_batch_sees_an_example_less_often():
    assert participation(rule_of(li.PoissonSampled(40, 4), 12)).probability == 0.1
    rng, seen = np.random.default_rng(0), 0
    for _ in range(20_000):
        drawn = np.flatnonzero(rng.random(40) < 0.1)
        seen += 0 in rng.permutation(drawn)[:4]
    found = participation(rule_of(li.PoissonSampled(40, 4, 4), 12)).probability
    assert found == pytest.approx(seen / 20_000, abs=0.007)
    assert found < 0.095
