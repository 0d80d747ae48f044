"""A rule by which every example takes part equally often."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate._numerics.powers import exceeded_with
from lastiterate._numerics.rounding import IntArray
from lastiterate.run.batch_rules.base import BatchRule, RandomSource, Resampling, Selection


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
        """How many steps there are before participations are drawn anew."""
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
