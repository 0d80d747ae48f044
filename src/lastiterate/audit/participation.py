"""When the example in question takes part: a chain of hidden states, the same in both worlds.

In step k (from 0) a run in state i goes to state j and sees the example with probability
`takes[i, j]`, and goes there without seeing it with probability `stays[i, j]`.  Every rule of
`lastiterate.run.batches` is such a chain of few states, so that the law of the last iterate needs
no enumeration of batches.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.run import batches as rules
from lastiterate.run.training_run import TrainingRun


class Participation(ABC):
    """A rule of participation."""

    @property
    @abstractmethod
    def start(self) -> Array:
        """The probability of each state before the first step."""

    @abstractmethod
    def step(self, k: int) -> tuple[Array, Array]:
        """(stays, takes) of step k, counted from 0."""

    def expected(self, steps: int) -> Array:
        """The chance that each step sees the example."""
        states, seen = self.start, np.empty(steps)
        for k in range(steps):
            stays, takes = self.step(k)
            seen[k] = float((states @ takes).sum())
            states = states @ (stays + takes)
        return seen


@dataclass(frozen=True)
class Always(Participation):
    """In every step."""

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        return np.zeros((1, 1)), np.ones((1, 1))


@dataclass(frozen=True)
class AtSteps(Participation):
    """In these steps, counted from 1, and in no others."""

    positions: frozenset[int]

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        seen = float(k + 1 in self.positions)
        return np.full((1, 1), 1.0 - seen), np.full((1, 1), seen)


@dataclass(frozen=True)
class Sampled(Participation):
    """In each step with this probability, independently."""

    probability: float

    def __post_init__(self) -> None:
        _check.number("probability", self.probability, at_least=0.0, at_most=1.0)

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        return np.full((1, 1), 1.0 - self.probability), np.full((1, 1), self.probability)


@dataclass(frozen=True)
class ShuffledOnce(Participation):
    """In the same one of `length` steps of every epoch, or, with probability `left_out`, never."""

    length: int
    left_out: float = 0.0

    @property
    def start(self) -> Array:
        each = (1.0 - self.left_out) / self.length
        return np.append(np.full(self.length, each), self.left_out)

    def step(self, k: int) -> tuple[Array, Array]:
        takes = np.zeros(self.length + 1)
        takes[k % self.length] = 1.0
        return np.diag(1.0 - takes), np.diag(takes)


@dataclass(frozen=True)
class ShuffledEachEpoch(Participation):
    """In one of `length` steps, anew in every epoch; in none with probability `left_out`.

    The states are: not yet in this epoch, and already.
    """

    length: int
    left_out: float = 0.0

    @property
    def start(self) -> Array:
        return np.array([1.0, 0.0])

    def step(self, k: int) -> tuple[Array, Array]:
        done = k % self.length
        each = (1.0 - self.left_out) / self.length
        now = each / (1.0 - done * each)
        stays, takes = np.array([[1.0 - now, 0.0], [0.0, 1.0]]), np.array([[0.0, now], [0.0, 0.0]])
        if done == 0:  # everybody waits for the new epoch
            stays, takes = np.repeat(stays[:1], 2, axis=0), np.repeat(takes[:1], 2, axis=0)
        return stays, takes


def participation(run: TrainingRun, *, position: int | None = None) -> Participation:
    """How the run's batches see one example.

    In a fixed order `position`, counted from 0, is its place in the epoch: by default the one
    that the last step sees.  An order that is released is forgotten, which tells less.
    """
    rule, length = run.batches, run.batches.batches_per_epoch
    if isinstance(rule, rules.FullBatch):
        return Always()
    if isinstance(rule, rules.FixedOrder):
        return AtSteps(frozenset(rule.positions))
    left_out = 1.0 - length * rule.batch_size / rule.examples
    if isinstance(rule, rules.Cyclic):
        place = (run.steps - 1) % length if position is None else position
        _check.count("position", place, at_least=0, at_most=length - 1)
        return AtSteps(frozenset(range(place + 1, run.steps + 1, length)))
    if isinstance(rule, rules.ShuffledOnce):
        return ShuffledOnce(length, max(left_out, 0.0))
    if isinstance(rule, rules.ShuffledEachEpoch):
        return ShuffledEachEpoch(length, max(left_out, 0.0))
    chance = rule.batch_size / rule.examples
    return Sampled(chance * _kept(rule) if isinstance(rule, rules.PoissonSampled) else chance)


def _kept(rule: rules.PoissonSampled) -> float:
    """The chance that an example that was drawn is among those that the largest batch keeps."""
    largest = rule.examples if rule.largest_batch is None else rule.largest_batch
    if largest >= rule.examples:
        return 1.0
    sizes = 1.0 + np.arange(rule.examples)
    chances = binom.pmf(sizes - 1.0, rule.examples - 1, rule.batch_size / rule.examples)
    return min(1.0, float(chances @ np.minimum(1.0, largest / sizes)))
