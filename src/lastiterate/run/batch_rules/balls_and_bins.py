"""Rules by which every example draws its batch of an epoch on its own."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.powers import exceeded_with
from lastiterate._numerics.rounding import IntArray
from lastiterate.run.batch_rules.base import RandomSource, Resampling, Selection
from lastiterate.run.batch_rules.positioned import InOrder


class _Bins(InOrder, abstract=True):
    """A rule by which positions are drawn independently, each with probability batch_size/examples.

    So a batch has `batch_size` examples on average, and one may have them all.  On average, as many
    examples are in no batch as would not fill a last one.
    """

    exact_size = False

    @property
    def largest_size(self) -> int:
        return self.examples

    def size_exceeded_with(self, probability: float) -> int:
        return exceeded_with(probability, self.examples, self.share)

    def arrangement(self, source: RandomSource) -> IntArray | None:
        del source
        return None

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        bins: list[IntArray] = []
        for epoch in self._epochs():
            if not bins or self.resampling is Resampling.EACH_EPOCH:
                bins = self._thrown(source)
            for position in epoch.tolist():
                yield bins[position]

    def _thrown(self, source: RandomSource) -> list[IntArray]:
        """The examples of each batch of an epoch."""
        length = self.batches_per_epoch
        drawn = source.each_to_a_position(self.examples, length, self.batch_size, self.examples)
        in_a_bin = np.flatnonzero(drawn >= 0)
        by_bin = in_a_bin[np.argsort(drawn[in_a_bin], kind="stable")]
        ends = np.cumsum(np.bincount(drawn[in_a_bin], minlength=length))
        return np.split(by_bin, ends[:-1])

    def stated(self, *, secret: bool) -> str:
        size, examples = f"{self.batch_size:,}", f"{self.examples:,}"
        divided = f"every step divides the sum of gradients by {size}"
        if not secret:
            return f"which examples a step sees does not depend on what they hold, and {divided}"
        rest = self.examples % self.batch_size
        none = f", or none with probability {rest:,}/{examples}" if rest else ""
        return (
            f"each of {examples} examples draws one of the {self.batches_per_epoch:,} batches of "
            f"an epoch on its own, each with probability {size}/{examples}{none}, "
            f"{self.in_secret}, and {divided}"
        )


@dataclass(frozen=True)
class BallsAndBins(_Bins):
    """Batches of an epoch among which every example draws one on its own, in secret, once.

    As easily done as a shuffle, but the batch of one example says nothing of that of another.  An
    example is in each of the `examples // batch_size` batches with probability
    batch_size/examples, and in none with the rest of 1.  Batches may be larger than `batch_size`,
    and steps that are too long for such a batch expand: bounds for the last iterate charge the
    probability of these batches.  Batches are never cut: another example would have to leave, and
    both would be seen.

    An example that is left out (adjacency="zero-out") is in a batch to which it adds nothing; one
    that is replaced leaves its batch to the other.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them a batch has on average; sums of gradients are divided by it.

    Examples
    --------
    >>> from lastiterate import BallsAndBins
    >>> rule = BallsAndBins(examples=60_000, batch_size=1_500)
    >>> rule.batches_per_epoch, rule.largest_size
    (40, 60000)
    """

    name = "balls-and-bins"
    resampling = Resampling.ONCE
    in_words = "on average, each example in one drawn on its own, once"
    in_secret = "once and in secret"


@dataclass(frozen=True)
class BallsAndBinsEachEpoch(_Bins):
    """Batches among which every example draws one on its own, in secret, before every epoch.

    All else is as for `BallsAndBins`.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them a batch has on average; sums of gradients are divided by it.

    Examples
    --------
    >>> from lastiterate import BallsAndBinsEachEpoch
    >>> BallsAndBinsEachEpoch(examples=60_000, batch_size=1_500).batches_per_epoch
    40
    """

    name = "balls-and-bins-each-epoch"
    resampling = Resampling.EACH_EPOCH
    in_words = "on average, each example in one drawn on its own every epoch"
    in_secret = "anew every epoch and in secret"

    @property
    def period(self) -> int | None:
        return None
