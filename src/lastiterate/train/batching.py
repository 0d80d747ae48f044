"""Which examples each step sees: the batch rules, carried out.

Shuffling once makes one shuffled copy, whose batches are contiguous.  In a mapped file the batches
themselves are visited in a shuffled order instead: all that the bounds for shuffled batches use is
that the *position* of each single example is uniform and independent of the data, and of a batch
visited at a uniformly random time that is true of every example in it.  (Amplification by
sampling uses more, so sampled batches cannot be taken from a file this way.)
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.run.batches import (
    Batches,
    Cyclic,
    FixedOrder,
    FullBatch,
    PoissonSampled,
    SampledWithoutReplacement,
    ShuffledEachEpoch,
    ShuffledOnce,
)
from lastiterate.train.data import Examples, Selection
from lastiterate.train.noise import Order, Randomness

_FROM_FILES = (Cyclic, ShuffledOnce, ShuffledEachEpoch)


def arranged(
    rule: Batches, examples: Examples, randomness: Randomness
) -> tuple[Examples, Iterator[Selection]]:
    """The examples as they will be read, and the endless sequence of batches."""
    _check(rule, examples)
    size, length = rule.batch_size, rule.batches_per_epoch
    if isinstance(rule, SampledWithoutReplacement):
        return examples, (randomness.subset(rule.examples, size) for _ in count())
    if isinstance(rule, PoissonSampled):
        return examples, _poisson(rule, randomness)
    if isinstance(rule, ShuffledEachEpoch):
        if examples.is_mapped:
            return examples, _blocks_each_epoch(size, length, randomness)
        return examples, _shuffled_each_epoch(rule, randomness)
    visited = np.arange(length)
    if isinstance(rule, ShuffledOnce):
        if examples.is_mapped:
            visited = randomness.permutation(length)
        else:
            examples = examples.reordered(randomness.permutation(len(examples))[: size * length])
    return examples, _blocks(size, visited)


def _blocks(size: int, visited: Order) -> Iterator[Selection]:
    while True:
        for block in visited.tolist():
            yield slice(block * size, (block + 1) * size)


def _blocks_each_epoch(size: int, length: int, randomness: Randomness) -> Iterator[Selection]:
    while True:
        for block in randomness.permutation(length).tolist():
            yield slice(block * size, (block + 1) * size)


def _shuffled_each_epoch(rule: ShuffledEachEpoch, randomness: Randomness) -> Iterator[Selection]:
    while True:
        order = randomness.permutation(rule.examples)
        for batch in range(rule.batches_per_epoch):
            yield order[batch * rule.batch_size : (batch + 1) * rule.batch_size]


def _poisson(rule: PoissonSampled, randomness: Randomness) -> Iterator[Selection]:
    assert rule.largest_batch is not None
    while True:
        drawn = randomness.each_with_probability(rule.examples, rule.batch_size, rule.examples)
        if drawn.size > rule.largest_batch:
            drawn = drawn[randomness.subset(drawn.size, rule.largest_batch)]
        yield drawn


def _check(rule: Batches, examples: Examples) -> None:
    if isinstance(rule, FixedOrder):
        must_be = "a rule that says which examples each step sees"
        raise InvalidParameter("batches", rule, must_be=must_be)
    if examples.is_mapped and not isinstance(rule, _FROM_FILES):
        names = ", ".join(kind.__name__ for kind in _FROM_FILES)
        raise InvalidParameter("batches", rule, must_be=f"one of {names} for a mapped file")
    # Rows after the last full batch of a file are always left out, so they must not count as
    # examples that might have been left out by chance.
    whole = rule.batch_size * rule.batches_per_epoch
    expected = whole if examples.is_mapped else len(examples)
    if rule.examples != expected or (isinstance(rule, FullBatch) and rule.examples != whole):
        must_be = f"{expected}, the number of examples that the batches are drawn from"
        raise InvalidParameter("batches.examples", rule.examples, must_be=must_be)
