"""Rules that give every example a position.

Their order is fixed, or they shuffle in secret: the examples, or fixed blocks of consecutive ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, Self

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import IntArray
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import BatchRule, RandomSource, Resampling, Selection

_MAX_LISTED = 8
_FOLLOW_FROM_POSITIONS = (
    "period",
    "position_count",
    "participations",
    "most_participations",
    "longest_wait",
    "selections",
)

# Words in the error for those who say only "shuffled".
SHUFFLED = (
    "'shuffled-each-epoch' is what DataLoader(shuffle=True) does; 'shuffled-once' keeps one order"
)


class PositionedRule(BatchRule, abstract=True):
    """A rule by which every example has a position, and each step sees the examples of one.

    Resampled `ONCE`, an example's position is uniform among `batches_per_epoch`, or it has none
    with the probability of being left over.  Resampled `EACH_EPOCH`, the same holds in every epoch
    anew, whose `batches_per_epoch` steps see each position once.  Positions are numbered from 0.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses methods of another rule that do not follow from this rule's `position_at`."""
        own, shared = _defined_at(cls, "position_at"), cls.__mro__.index(PositionedRule)
        inherited = [one for one in _FOLLOW_FROM_POSITIONS if own < _defined_at(cls, one) < shared]
        if inherited:
            raise TypeError(
                f"batch rule {cls.__name__} has its own `position_at`, but inherits "
                f"{', '.join(inherited)} from a rule with another one: derive from PositionedRule"
            )
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def position_at(self, steps: IntArray) -> IntArray:
        """The position that each step sees.

        Parameters
        ----------
        steps : array of int
            Steps, counted from 0.

        Returns
        -------
        array of int
            Positions, counted from 0; -1 is none of interest.

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).position_at(np.array([0, 9, 10]))
        array([0, 9, 0])
        """

    @property
    def steps_per_pass(self) -> int:
        return self.batches_per_epoch

    @property
    def period(self) -> int | None:
        return None

    def position_count(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH or self.period is not None:
            return min(self.batches_per_epoch, steps)
        return 1 + int(self.position_at(np.arange(steps)).max())

    def participations(self, position: int, steps: int) -> IntArray:
        if self.resampling is Resampling.EACH_EPOCH:
            raise ValueError("an example has another position in every epoch")
        if self.period is not None:
            return np.arange(position, steps, self.period)
        return np.flatnonzero(self.position_at(np.arange(steps)) == position)

    def most_participations(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH:
            return -(-steps // self.batches_per_epoch)
        return super().most_participations(steps)

    def longest_wait(self, steps: int) -> int:
        if self.resampling is Resampling.EACH_EPOCH:
            # Who may be left over in one epoch may be so in all.
            left_over = self.examples % self.batch_size > 0
            return steps if left_over else min(2 * self.batches_per_epoch, steps)
        if self.period is not None:
            return min(self.period, steps)
        waits = (
            np.diff(self.participations(i, steps), append=steps)
            for i in range(self.position_count(steps))
        )
        return max(int(wait.max(initial=1)) for wait in waits)

    def arrangement(self, source: RandomSource) -> IntArray | None:
        if self.resampling is not Resampling.ONCE:
            return None
        whole = self.batch_size * self.batches_per_epoch
        return source.permutation(self.examples)[:whole]

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        for epoch in self._epochs():
            anew = self.resampling is Resampling.EACH_EPOCH
            order = source.permutation(self.examples) if anew else None
            for position in epoch.tolist():
                block = slice(position * self.batch_size, (position + 1) * self.batch_size)
                yield block if order is None else order[block]

    def _epochs(self) -> Iterator[IntArray]:
        length = self.batches_per_epoch
        return (self.position_at(np.arange(start, start + length)) for start in count(0, length))

    def _remainder_clause(self) -> str:
        rest = self.examples % self.batch_size
        return f"; the {rest:,} left over sit out the epoch" if rest else ""


def _defined_at(cls: type, name: str) -> int:
    """The number of bases that a class passes until it finds this attribute."""
    return next(i for i, base in enumerate(cls.__mro__) if name in vars(base))


class InOrder(PositionedRule, abstract=True):
    """A rule by which the positions are visited in the same order every epoch."""

    @property
    def period(self) -> int | None:
        return self.batches_per_epoch

    def position_at(self, steps: IntArray) -> IntArray:
        return steps % self.batches_per_epoch


@dataclass(frozen=True)
class FullBatch(InOrder):
    """Full batches: every step sees every example.

    Parameters
    ----------
    examples : int
        How many there are.

    Examples
    --------
    >>> from lastiterate import FullBatch
    >>> FullBatch(examples=100).batches_per_epoch
    1
    """

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

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them each batch has.  Examples that do not fill a batch are left out of every
        epoch (drop_last=True in PyTorch): a smaller batch would have a larger sensitivity.

    Examples
    --------
    >>> from lastiterate import Cyclic
    >>> Cyclic(examples=60_000, batch_size=1_500).batches_per_epoch
    40
    """

    name = "cyclic"
    resampling = Resampling.NEVER
    in_words = "in the same order every epoch"
    openly = "in the same order every epoch, chosen without regard to what they hold"
    in_blocks = "cyclic"


@dataclass(frozen=True)
class FixedOrder(PositionedRule):
    """Any fixed order, given by the steps that see the most exposed example.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them each batch has.
    positions : sequence of int
        The steps, counted from 1 as in x_1, .., x_T, in which that example is in the batch.

    Examples
    --------
    >>> from lastiterate import FixedOrder
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
        most_exposed = f", and none is more exposed than the one seen in {self._list_steps()}"
        return (
            f"every batch has exactly {self.batch_size:,} of {self.examples:,} examples, "
            f"{self.openly}{most_exposed}{self._remainder_clause()}"
        )

    def _list_steps(self) -> str:
        steps = [f"{step:,}" for step in self.positions]
        if not steps:
            return "no step"
        if len(steps) > _MAX_LISTED:
            return f"{len(steps):,} steps, from {steps[0]} to {steps[-1]}"
        return ("step " if len(steps) == 1 else "steps ") + ", ".join(steps)


class _Blocks(InOrder, abstract=True):
    """A rule whose positions are fixed blocks of consecutive examples, visited in random order.

    The position of every single example is uniform, which is all that averages over positions use.
    But which examples share a block is no secret: two examples cannot have been exchanged on their
    own.  Examples beyond the last full block would never be seen, so there must be none.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.examples % self.batch_size:
            must_be = f"a multiple of batch_size={self.batch_size}: blocks are never cut"
            raise InvalidParameter("examples", self.examples, must_be=must_be)

    @classmethod
    def of_sizes(cls, examples: int, batch_size: int | None) -> Self:
        """The rule for the full blocks of this many examples."""
        if batch_size is not None and 0 < batch_size <= examples:
            examples -= examples % batch_size
        return super().of_sizes(examples, batch_size)

    def arrangement(self, source: RandomSource) -> IntArray | None:
        del source
        return None

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        length, size = self.batches_per_epoch, self.batch_size
        block_at = source.permutation(length)
        for number, epoch in enumerate(self._epochs()):
            if number and self.resampling is Resampling.EACH_EPOCH:
                block_at = source.permutation(length)
            for block in block_at[epoch].tolist():
                yield slice(block * size, (block + 1) * size)


@dataclass(frozen=True)
class ShuffledBlocksEachEpoch(_Blocks):
    """Fixed blocks of consecutive examples, in a secret order that is shuffled before every epoch.

    For files that are too large to be shuffled themselves.

    Parameters
    ----------
    examples : int
        How many there are, a multiple of `batch_size`.
    batch_size : int
        How many examples a block has.

    Examples
    --------
    >>> from lastiterate import ShuffledBlocksEachEpoch
    >>> ShuffledBlocksEachEpoch(examples=60_000, batch_size=1_500).batches_per_epoch
    40
    """

    name = "shuffled-blocks-each-epoch"
    resampling = Resampling.EACH_EPOCH
    in_words = "in fixed blocks, shuffled every epoch"
    in_secret = "in fixed blocks, from a new uniform shuffle of these every epoch, drawn in secret"
    in_blocks = name

    @property
    def period(self) -> int | None:
        return None


@dataclass(frozen=True)
class ShuffledBlocksOnce(_Blocks):
    """Fixed blocks of consecutive examples, in one secret order for all epochs.

    For files that are too large to be shuffled themselves.

    Parameters
    ----------
    examples : int
        How many there are, a multiple of `batch_size`.
    batch_size : int
        How many examples a block has.

    Examples
    --------
    >>> from lastiterate import ShuffledBlocksOnce
    >>> ShuffledBlocksOnce(examples=60_000, batch_size=1_500).batches_per_epoch
    40
    """

    name = "shuffled-blocks-once"
    resampling = Resampling.ONCE
    in_words = "in fixed blocks, shuffled once"
    in_secret = "in fixed blocks, from one uniform shuffle of these, drawn in secret"
    in_blocks = name


@dataclass(frozen=True)
class ShuffledEachEpoch(InOrder):
    """Batches from a secret shuffle of the examples before every epoch.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them each batch has.  Examples that do not fill a batch are left out of that
        epoch.

    Examples
    --------
    >>> from lastiterate import ShuffledEachEpoch
    >>> ShuffledEachEpoch(examples=60_000, batch_size=1_500).batches_per_epoch
    40
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
    """Batches from one secret shuffle of the examples, visited in the same order every epoch.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them each batch has.  Examples that do not fill a batch are left out of every
        epoch.

    Examples
    --------
    >>> from lastiterate import ShuffledOnce
    >>> ShuffledOnce(examples=60_000, batch_size=1_500).batches_per_epoch
    40
    """

    name = "shuffled-once"
    resampling = Resampling.ONCE
    in_words = "shuffled once"
    in_secret = "from one uniform shuffle, drawn in secret"
    in_blocks = "shuffled-blocks-once"
    exchangeable = True
