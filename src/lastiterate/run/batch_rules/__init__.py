"""The batch rules.

Batches have exactly `batch_size` examples, unless the rule says otherwise.  Where that does not
divide `examples`, the remainder is left out of every epoch (drop_last=True in PyTorch's words): a
smaller batch would have a larger sensitivity.
"""

from __future__ import annotations

from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling, rules
from lastiterate.run.batch_rules.drawn import (
    BalancedSampled,
    BallsAndBins,
    BallsAndBinsEachEpoch,
    PoissonSampled,
    SampledWithoutReplacement,
)
from lastiterate.run.batch_rules.ordered import (
    Cyclic,
    FixedOrder,
    FullBatch,
    ShuffledBlocksEachEpoch,
    ShuffledBlocksOnce,
    ShuffledEachEpoch,
    ShuffledOnce,
)

_ONCE = {
    ShuffledEachEpoch: ShuffledOnce,
    ShuffledBlocksEachEpoch: ShuffledBlocksOnce,
    BallsAndBinsEachEpoch: BallsAndBins,
}

_EACH_EPOCH = {once: each for each, once in _ONCE.items()}


def same_batches(rule: BatchRule, steps: int) -> tuple[BatchRule, ...]:
    """The rules, this one among them, under which the batches of so many steps have one joint law.

    The order in which they are named is the same for all of them.

    Parameters
    ----------
    rule : BatchRule
        One of them.
    steps : int
        The length of the run.

    Returns
    -------
    tuple of BatchRule
        All of them.

    Examples
    --------
    >>> from lastiterate import PoissonSampled
    >>> from lastiterate.run.batch_rules import same_batches
    >>> [one.name for one in same_batches(PoissonSampled(examples=9, batch_size=9), steps=2)]
    ['full', 'poisson']
    """
    kind, sizes = type(rule), (rule.examples, rule.batch_size)
    if isinstance(rule, (FullBatch, FixedOrder)):
        return (rule,)
    if rule.batch_size == rule.examples and rule.share == 1.0:
        return (FullBatch(rule.examples), rule)
    if isinstance(rule, BalancedSampled):
        # Each example draws one of the steps of every epoch, evenly.
        is_bins = rule.epochs == 1 and rule.examples % rule.batch_size == 0
        return (*same_batches(BallsAndBinsEachEpoch(*sizes), steps), rule) if is_bins else (rule,)
    if steps <= rule.batches_per_epoch and (kind in _ONCE or kind in _EACH_EPOCH):
        once = _ONCE.get(kind, kind)
        return once(*sizes), _EACH_EPOCH[once](*sizes)
    return (rule,)


__all__ = [
    "RULES",
    "BalancedSampled",
    "BallsAndBins",
    "BallsAndBinsEachEpoch",
    "BatchRule",
    "Cyclic",
    "FixedOrder",
    "FullBatch",
    "PoissonSampled",
    "Resampling",
    "SampledWithoutReplacement",
    "ShuffledBlocksEachEpoch",
    "ShuffledBlocksOnce",
    "ShuffledEachEpoch",
    "ShuffledOnce",
    "rules",
    "same_batches",
]
