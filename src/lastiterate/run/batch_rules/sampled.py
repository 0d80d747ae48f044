"""Rules that draw the batch of every step anew."""

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
