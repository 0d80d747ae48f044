"""Which examples each step sees.

Batches have exactly `batch_size` examples.  Where that does not divide `examples`, the
remainder is left out of every epoch: a smaller batch would have a larger sensitivity.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType


@dataclass(frozen=True)
class _Batches:
    examples: int
    batch_size: int

    def __post_init__(self) -> None:
        examples = _check.count("examples", self.examples, at_least=1)
        size = _check.count("batch_size", self.batch_size, at_least=1, at_most=examples)
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
        examples = _check.count("examples", self.examples, at_least=1)
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "batch_size", examples)


@dataclass(frozen=True)
class Cyclic(_Batches):
    """One fixed partition into batches, visited in the same, public order every epoch.

    Examples that do not fill a batch of `batch_size` are left out of every epoch (drop_last=True
    in PyTorch's words): a smaller batch would have a larger sensitivity.
    """


@dataclass(frozen=True)
class ShuffledOnce(_Batches):
    """The examples are shuffled in secret, once; then the batches are visited in order.

    Examples that do not fill a batch are left out of every epoch.
    """


@dataclass(frozen=True)
class ShuffledEachEpoch(_Batches):
    """The examples are shuffled in secret before every epoch.

    Examples that do not fill a batch are left out of that epoch.
    """


@dataclass(frozen=True)
class SampledWithoutReplacement(_Batches):
    """Every step draws `batch_size` distinct examples in secret, anew."""


@dataclass(frozen=True)
class PoissonSampled(_Batches):
    """Every step includes each example with probability batch_size/examples, in secret.

    `batch_size` is the expected size, by which the sum of gradients is divided; a batch
    of more than `largest_batch` examples is cut to that size uniformly at random.  None, as in
    Opacus, cuts nothing.
    """

    largest_batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = self.examples if self.largest_batch is None else self.largest_batch
        largest = _check.count(
            "largest_batch", stated, at_least=self.batch_size, at_most=self.examples
        )
        object.__setattr__(self, "largest_batch", largest)


@dataclass(frozen=True)
class FixedOrder(_Batches):
    """Any fixed order, told by the steps that see the example most exposed by it.

    `positions` are not an order of the examples: they are the steps, counted from 1 as in
    x_1, .., x_T, in which that one example is in the batch.

    >>> FixedOrder(examples=100, batch_size=10, positions=[3, 13, 20])
    FixedOrder(examples=100, batch_size=10, positions=(3, 13, 20))
    """

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


Batches = (
    FullBatch
    | Cyclic
    | ShuffledOnce
    | ShuffledEachEpoch
    | SampledWithoutReplacement
    | PoissonSampled
    | FixedOrder
)
