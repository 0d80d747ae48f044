"""Rules that shuffle in secret: the examples, or fixed blocks of consecutive examples."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from lastiterate._numerics.rounding import IntArray
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import RandomSource, Resampling, Selection
from lastiterate.run.batch_rules.positioned import InOrder

# For those who say only "shuffled".
SHUFFLED = (
    "'shuffled-each-epoch' is what DataLoader(shuffle=True) does; 'shuffled-once' keeps one order"
)


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
        """The rule for the full blocks of so many examples."""
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
