"""Which examples each step sees.

Batches have exactly `batch_size` examples.  Where that does not divide `examples`, the
remainder is left out of every epoch: a smaller batch would have a larger sensitivity.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from lastiterate._numerics import guards
from lastiterate.errors import InvalidParameter, InvalidType


@dataclass(frozen=True)
class _Batches:
    examples: int
    batch_size: int

    def __post_init__(self) -> None:
        examples = guards.count("examples", self.examples, at_least=1)
        size = guards.count("batch_size", self.batch_size, at_least=1, at_most=examples)
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "batch_size", size)

    @property
    def batches_per_epoch(self) -> int:
        """How many full batches one pass over the examples makes."""
        return self.examples // self.batch_size


@dataclass(frozen=True)
class FullBatch(_Batches):
    """Every step sees every example."""

    batch_size: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        examples = guards.count("examples", self.examples, at_least=1)
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "batch_size", examples)


@dataclass(frozen=True)
class Cyclic(_Batches):
    """One fixed partition into batches, visited in the same, public order every epoch."""


@dataclass(frozen=True)
class ShuffledOnce(_Batches):
    """The examples are shuffled in secret, once; then the batches are visited in order."""


@dataclass(frozen=True)
class ShuffledEachEpoch(_Batches):
    """The examples are shuffled in secret before every epoch."""


@dataclass(frozen=True)
class SampledWithoutReplacement(_Batches):
    """Every step draws `batch_size` distinct examples in secret, anew."""


@dataclass(frozen=True)
class PoissonSampled(_Batches):
    """Every step includes each example with probability batch_size/examples, in secret.

    `batch_size` is the expected size, by which the sum of gradients is divided; a batch
    of more than `largest_batch` examples is cut to that size uniformly at random.
    """

    largest_batch: int

    def __post_init__(self) -> None:
        super().__post_init__()
        largest = guards.count(
            "largest_batch", self.largest_batch, at_least=self.batch_size, at_most=self.examples
        )
        object.__setattr__(self, "largest_batch", largest)


@dataclass(frozen=True)
class FixedOrder(_Batches):
    """Any fixed order, told by the steps that see the example most exposed by it.

    `positions` are steps, counted from 1 as in x_1, .., x_T, in increasing order.
    """

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        must_be = "increasing whole numbers from 1 on"
        if isinstance(self.positions, (str, bytes)) or not isinstance(self.positions, Iterable):
            raise InvalidType("positions", self.positions, must_be=must_be)
        steps = tuple(
            guards.count(f"positions[{i}]", step, at_least=1)
            for i, step in enumerate(self.positions)
        )
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise InvalidParameter("positions", steps, must_be=must_be)
        object.__setattr__(self, "positions", steps)


Batches = (
    FullBatch
    | Cyclic
    | ShuffledOnce
    | ShuffledEachEpoch
    | SampledWithoutReplacement
    | PoissonSampled
    | FixedOrder
)
