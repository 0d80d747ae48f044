"""The batch rules.

Batches have exactly `batch_size` examples, unless the rule says otherwise.  Where that does not
divide `examples`, the remainder is left out of every epoch (drop_last=True in PyTorch's words): a
smaller batch would have a larger sensitivity.
"""

from lastiterate.run.batch_rules.balanced import BalancedSampled
from lastiterate.run.batch_rules.balls_and_bins import BallsAndBins, BallsAndBinsEachEpoch
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling, rules
from lastiterate.run.batch_rules.positioned import Cyclic, FixedOrder, FullBatch
from lastiterate.run.batch_rules.sampled import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.batch_rules.shuffled import (
    ShuffledBlocksEachEpoch,
    ShuffledBlocksOnce,
    ShuffledEachEpoch,
    ShuffledOnce,
)

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
]
