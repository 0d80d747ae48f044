"""Rules by which batches are drawn in secret rather than cut from an order of the examples.

Every step draws its batch anew, or every example draws its batch of an epoch on its own, or its
steps among those of several epochs, so that all take part equally often.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import numpy as np

from lastiterate import _check
from lastiterate._numerics.powers import exceeded_with
from lastiterate._numerics.rounding import FEW_ROUNDINGS, IntArray, down
from lastiterate.run.batch_rules.base import BatchRule, RandomSource, Resampling, Selection
from lastiterate.run.batch_rules.ordered import InOrder


class SampledRule(BatchRule, abstract=True):
    """Every step draws its batch anew, independently of all others."""

    @property
    @abstractmethod
    def probability(self) -> float:
        """The probability that a step sees an example."""

    @abstractmethod
    def sample_batch(self, source: RandomSource) -> IntArray:
        """The examples of one step.

        Parameters
        ----------
        source : RandomSource
            The random draws.

        Returns
        -------
        array of int
            Indices of examples.

        Examples
        --------
        >>> from lastiterate import SampledWithoutReplacement
        >>> from lastiterate.train.noise import randomness
        >>> SampledWithoutReplacement(100, 10).sample_batch(randomness(0)).size
        10
        """

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


@dataclass(frozen=True)
class PoissonSampled(SampledRule):
    """Batches that each example joins with the same probability, every step anew and in secret.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        The number by which the sum of gradients is divided.
    largest_batch : int, optional
        A larger batch is cut to this size uniformly at random; None, as in Opacus, cuts nothing.
    sample_rate : float, optional
        The probability; batch_size/examples if left out, so that `batch_size` is the expected
        size.  The two differ in Opacus where the batch size does not divide the examples.

    Examples
    --------
    >>> from lastiterate import PoissonSampled
    >>> rule = PoissonSampled(examples=50_000, batch_size=510, sample_rate=1 / 98)
    >>> rule.share == 1 / 98, rule.steps_per_pass
    (True, 98)
    """

    name = "poisson"
    resampling = Resampling.EACH_STEP
    in_words = "on average, each example drawn on its own every step"
    in_secret = "each drawn on its own every step, in secret"
    exact_size = False

    largest_batch: int | None = None
    sample_rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = self.examples if self.largest_batch is None else self.largest_batch
        largest = _check.count(
            "largest_batch", stated, at_least=self.batch_size, at_most=self.examples
        )
        object.__setattr__(self, "largest_batch", largest)
        if self.sample_rate is not None:
            rate = _check.number("sample_rate", self.sample_rate, above=0.0, at_most=1.0)
            # One rule has one description, so that equal rules compare equal.
            usual = rate == self.batch_size / self.examples
            object.__setattr__(self, "sample_rate", None if usual else rate)

    @property
    def share(self) -> float:
        return super().share if self.sample_rate is None else self.sample_rate

    @property
    def steps_per_pass(self) -> int:
        if self.sample_rate is None:
            return super().steps_per_pass
        return math.ceil(down(1.0 / self.sample_rate, FEW_ROUNDINGS))

    @property
    def largest_size(self) -> int:
        return self.examples if self.largest_batch is None else self.largest_batch

    def size_exceeded_with(self, probability: float) -> int:
        drawn = exceeded_with(probability, self.examples, self.share)
        return min(drawn, self.largest_size)

    @property
    def probability(self) -> float:
        """The probability to be drawn and kept in a batch of at most the largest size."""
        if self.largest_size >= self.examples:
            return self.share
        from scipy.stats import binom  # which takes long to load

        sizes = 1.0 + np.arange(self.examples)
        probabilities = binom.pmf(sizes - 1.0, self.examples - 1, self.share)
        kept = float(probabilities @ np.minimum(1.0, self.largest_size / sizes))
        return self.share * min(1.0, kept)

    def sample_batch(self, source: RandomSource) -> IntArray:
        rate = Fraction(self.batch_size, self.examples)
        if self.sample_rate is not None:
            rate = Fraction(self.sample_rate)
        drawn = source.each_with_probability(self.examples, rate.numerator, rate.denominator)
        if drawn.size > self.largest_size:
            drawn = drawn[source.subset(drawn.size, self.largest_size)]
        return drawn

    def described(self) -> str:
        if self.sample_rate is None:
            return super().described()
        return (
            f"each of {self.examples:,} examples drawn on its own with probability "
            f"{self.sample_rate:.6g} every step, sums of gradients divided by {self.batch_size:,}"
        )

    def stated(self, *, secret: bool) -> str:
        size, examples = f"{self.batch_size:,}", f"{self.examples:,}"
        rate = f"{size}/{examples}" if self.sample_rate is None else f"{self.sample_rate!r}"
        drawn = (
            f"every step takes each of {examples} examples on its own with probability "
            f"{rate}, in secret, and divides the sum of gradients by {size}"
            if secret
            else f"which examples a step takes does not depend on what they hold, and every step "
            f"divides the sum of gradients by {size}"
        )
        if self.largest_size == self.examples:
            return drawn
        return f"{drawn}; batches of more than {self.largest_size:,} are cut to that size at random"


@dataclass(frozen=True)
class SampledWithoutReplacement(SampledRule):
    """Batches of distinct examples that every step draws anew, in secret.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them each batch has.

    Examples
    --------
    >>> from lastiterate import SampledWithoutReplacement
    >>> SampledWithoutReplacement(examples=60_000, batch_size=1_500).probability
    0.025
    """

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
                bins = self._draw_bins(source)
            for position in epoch.tolist():
                yield bins[position]

    def _draw_bins(self, source: RandomSource) -> list[IntArray]:
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


@dataclass(frozen=True)
class BalancedSampled(BatchRule):
    """Batches in which every example takes part equally often, in steps drawn on its own.

    In every `epochs` epochs, each of `examples // batch_size` steps, an example takes part in
    exactly `epochs` steps.  All sets of so many steps are equally likely, and those of one example
    say nothing of those of another.  So batches have `batch_size` examples on average, or a few
    more where that does not divide `examples`.  They are never cut.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        The number by which the sum of gradients is divided.
    epochs : int
        In so many epochs every example takes part as many times, before steps are drawn anew.

    Examples
    --------
    >>> from lastiterate import BalancedSampled
    >>> rule = BalancedSampled(examples=60_000, batch_size=1_500, epochs=50)
    >>> rule.batches_per_epoch, rule.most_participations(steps=2_000)
    (40, 50)
    """

    name = "balanced"
    resampling = Resampling.EACH_FEW_EPOCHS
    in_words = "on average, each example in as many steps, drawn on its own"
    in_secret = "drawn in secret"
    exact_size = False

    epochs: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epochs", _check.count("epochs", self.epochs, at_least=1))

    @property
    def steps_per_draw(self) -> int:
        """The number of steps until participations are drawn anew."""
        return self.epochs * self.batches_per_epoch

    @property
    def share(self) -> float:
        """The probability that a step sees an example."""
        return 1.0 / self.batches_per_epoch

    @property
    def largest_size(self) -> int:
        return self.examples

    def size_exceeded_with(self, probability: float) -> int:
        return exceeded_with(probability, self.examples, self.share)

    @property
    def steps_per_pass(self) -> int:
        return self.batches_per_epoch

    @property
    def period(self) -> int | None:
        return None

    def position_count(self, steps: int) -> int:
        return 1

    def participations(self, position: int, steps: int) -> IntArray:
        return np.arange(steps)

    def most_participations(self, steps: int) -> int:
        whole, rest = divmod(steps, self.steps_per_draw)
        return whole * self.epochs + min(rest, self.epochs)

    def longest_wait(self, steps: int) -> int:
        whole, rest = divmod(steps, self.steps_per_draw)
        in_a_draw = self.steps_per_draw - self.epochs + 1  # all before it are the first steps
        if whole == 0:
            return min(rest, in_a_draw)
        return in_a_draw + min(rest if whole == 1 else steps, in_a_draw - 1)

    def selections(self, source: RandomSource) -> Iterator[Selection]:
        while True:
            left = np.full(self.examples, self.epochs)
            for remaining in range(self.steps_per_draw, 0, -1):
                batch = np.sort(np.concatenate(list(_members(left, remaining, source))))
                left[batch] -= 1
                yield batch

    def described(self) -> str:
        return (
            f"each of {self.examples:,} examples in {self.epochs:,} of every "
            f"{self.steps_per_draw:,} steps, drawn on its own, sums of gradients divided by "
            f"{self.batch_size:,}"
        )

    def stated(self, *, secret: bool) -> str:
        size, examples = f"{self.batch_size:,}", f"{self.examples:,}"
        divided = f"every step divides the sum of gradients by {size}"
        often = f"{self.epochs:,} of every {self.steps_per_draw:,} steps"
        if not secret:
            return (
                f"each of {examples} examples takes part in at most {often}, which do not depend "
                f"on what it holds, and {divided}"
            )
        return (
            f"each of {examples} examples takes part in {often}, drawn uniformly, on its own and "
            f"in secret, and {divided}"
        )


def _members(left: IntArray, remaining: int, source: RandomSource) -> Iterator[IntArray]:
    """The examples of the next step, by how often they still have to take part."""
    for often in np.unique(left[left > 0]).tolist():
        waiting = np.flatnonzero(left == often)
        yield waiting[source.each_with_probability(waiting.size, often, remaining)]
    yield np.empty(0, dtype=np.intp)
