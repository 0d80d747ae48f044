"""Rules that draw every batch anew."""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count

import numpy as np

from lastiterate._numerics.arrays import IntArray
from lastiterate.run.batch_rules.base import BatchRule, RandomSource, Selection


class SampledRule(BatchRule, abstract=True):
    """Every step draws its batch anew, independently of all others."""

    @property
    @abstractmethod
    def probability(self) -> float:
        """That a step sees an example."""

    @abstractmethod
    def sample_batch(self, source: RandomSource) -> IntArray:
        """The examples of one step."""

    @property
    def steps_per_pass(self) -> int:
        return -(-self.examples // self.batch_size)  # nothing is left out of a pass

    @property
    def period(self) -> int | None:
        return 1

    def position_count(self, steps: int) -> int:
        return 1

    def participations(self, position: int, steps: int) -> IntArray:
        return np.arange(steps)

    def longest_wait(self, steps: int) -> int:
        return steps

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        return (self.sample_batch(source) for _ in count())
