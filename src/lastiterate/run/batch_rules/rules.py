"""The batch rules.

Batches have exactly `batch_size` examples, unless the rule says otherwise.  Where that does not
divide `examples`, the remainder is left out of every epoch (drop_last=True in PyTorch's words): a
smaller batch would have a larger sensitivity.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import IntArray
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.balls_and_bins import BallsAndBins, BallsAndBinsEachEpoch
from lastiterate.run.batch_rules.base import (
    RULES,
    BatchRule,
    RandomSource,
    Resampling,
    Selection,
    rules,
)
from lastiterate.run.batch_rules.positioned import InOrder, PositionedRule
from lastiterate.run.batch_rules.resampled import SampledRule
from lastiterate.run.batch_rules.shuffled_blocks import ShuffledBlocksEachEpoch, ShuffledBlocksOnce
from lastiterate.run.poisson_sampled import PoissonSampled

__all__ = [
    "RULES",
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

_MOST_LISTED = 8


@dataclass(frozen=True)
class FullBatch(InOrder):
    """Every step sees every example."""

    name = "full"
    resampling = Resampling.NEVER
    in_words = "all at once"
    ordered = False

    batch_size: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        examples = _check.count("examples", self.examples, at_least=1)
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "batch_size", examples)

    @classmethod
    def of_sizes(cls, examples: int, batch_size: int | None) -> Self:
        rule = cls(examples)
        if batch_size not in (None, rule.examples):
            must_be = "left out with full batches, or all examples"
            raise InvalidParameter("batch_size", batch_size, must_be=must_be)
        return rule

    def described(self) -> str:
        return f"each on all of {self.examples:,} examples"

    def stated(self, *, secret: bool) -> str:
        return f"every step averages the gradients of all {self.examples:,} examples"


@dataclass(frozen=True)
class Cyclic(InOrder):
    """One fixed partition into batches, visited in the same, public order every epoch.

    Examples that do not fill a batch of `batch_size` are left out of every epoch (drop_last=True
    in PyTorch's words): a smaller batch would have a larger sensitivity.
    """

    name = "cyclic"
    resampling = Resampling.NEVER
    in_words = "in the same order every epoch"
    openly = "in the same order every epoch, chosen without regard to what they hold"
    in_blocks = "cyclic"


@dataclass(frozen=True)
class FixedOrder(PositionedRule):
    """Any fixed order, told by the steps that see the example most exposed by it.

    `positions` are the steps, counted from 1 as in x_1, .., x_T, in which that one example is in
    the batch.

    >>> FixedOrder(examples=100, batch_size=10, positions=[3, 13, 20])
    FixedOrder(examples=100, batch_size=10, positions=(3, 13, 20))
    """

    name = "fixed-order"
    resampling = Resampling.NEVER
    in_words = "in a fixed order"
    any_length = False
    from_sizes = False

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        must_be = "increasing whole numbers from 1 on: the steps that see one example"
        ordered = isinstance(self.positions, Iterable) and not isinstance(
            self.positions, (str, bytes, Mapping, Set)
        )
        if not ordered:
            raise InvalidType("positions", self.positions, must_be=must_be)
        steps = tuple(
            _check.count(f"positions[{i}]", step, at_least=1)
            for i, step in enumerate(self.positions)
        )
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise InvalidParameter("positions", steps, must_be=must_be)
        object.__setattr__(self, "positions", steps)

    def position_count(self, steps: int) -> int:
        return 1

    def position_at(self, steps: IntArray) -> IntArray:
        return np.where(np.isin(steps + 1, np.array(self.positions, dtype=np.intp)), 0, -1)

    def participations(self, position: int, steps: int) -> IntArray:
        return np.array(self.positions, dtype=np.intp) - 1

    def check_length(self, steps: int) -> None:
        if self.positions and self.positions[-1] > steps:
            must_be = f"increasing whole numbers in [1, steps] = [1, {steps}]"
            raise InvalidParameter("positions", self.positions, must_be=must_be)

    def stopped(self, steps: int) -> BatchRule:
        kept = tuple(position for position in self.positions if position <= steps)
        return FixedOrder(self.examples, self.batch_size, kept)

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        must_be = "a rule that says which examples each step sees"
        raise InvalidParameter("batches", self, must_be=must_be)

    def stated(self, *, secret: bool) -> str:
        most_exposed = f", and none is more exposed than the one seen in {self._listed()}"
        return (
            f"every batch has exactly {self.batch_size:,} of {self.examples:,} examples, "
            f"{self.openly}{most_exposed}{self._left_over()}"
        )

    def _listed(self) -> str:
        steps = [f"{step:,}" for step in self.positions]
        if not steps:
            return "no step"
        if len(steps) > _MOST_LISTED:
            return f"{len(steps):,} steps, from {steps[0]} to {steps[-1]}"
        return ("step " if len(steps) == 1 else "steps ") + ", ".join(steps)


@dataclass(frozen=True)
class SampledWithoutReplacement(SampledRule):
    """Every step draws `batch_size` distinct examples in secret, anew."""

    name = "sampled"
    resampling = Resampling.EACH_STEP
    in_words = "drawn anew every step"
    in_secret = "drawn uniformly, anew every step and in secret"
    exchangeable = True

    @property
    def probability(self) -> float:
        return self.share

    def sample_batch(self, source: RandomSource) -> IntArray:
        return source.subset(self.examples, self.batch_size)


@dataclass(frozen=True)
class ShuffledEachEpoch(InOrder):
    """The examples are shuffled in secret before every epoch.

    Examples that do not fill a batch are left out of that epoch.
    """

    name = "shuffled-each-epoch"
    resampling = Resampling.EACH_EPOCH
    in_words = "shuffled every epoch"
    in_secret = "from a new uniform shuffle every epoch, drawn in secret"
    in_blocks = "shuffled-blocks-each-epoch"
    exchangeable = True

    @property
    def period(self) -> int | None:
        return None


@dataclass(frozen=True)
class ShuffledOnce(InOrder):
    """The examples are shuffled in secret, once; then the batches are visited in order.

    Examples that do not fill a batch are left out of every epoch.
    """

    name = "shuffled-once"
    resampling = Resampling.ONCE
    in_words = "shuffled once"
    in_secret = "from one uniform shuffle, drawn in secret"
    in_blocks = "shuffled-blocks-once"
    exchangeable = True
