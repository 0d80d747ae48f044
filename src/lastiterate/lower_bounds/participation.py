"""The participation of one example as a chain of hidden states, the same for both data sets.

In step k (from 0) a run in state i goes to state j and sees the example with probability `takes[i,
j]`, and goes there without seeing it with probability `stays[i, j]`.  Every rule of
`lastiterate.run.batch_rules` is such a chain of few states, so that the law of the last
iterate needs no enumeration of batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, assert_never, cast

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down
from lastiterate.errors import InvalidType
from lastiterate.lower_bounds.drawn_sums import (
    Moves,
    drawn_profile,
    mixed_means_profile,
    most_of_sum,
    smoothed_lower_profile,
)
from lastiterate.profile.lower import LowerProfile, MeansLowerProfile
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from lastiterate.run.batch_rules.drawn import SampledRule
from lastiterate.run.training_run import TrainingRun

_ADDED_IN_OURS: Moves = (1.0, 0.0)
_MAX_WORK = 50_000_000  # states times steps times frequencies


class Participation(ABC):
    """A rule of participation; `by_chance` says whether chance decides."""

    by_chance: ClassVar[bool] = True

    @property
    @abstractmethod
    def start(self) -> Array:
        """The probability of each state before the first step."""

    @abstractmethod
    def step(self, k: int) -> tuple[Array, Array]:
        """(stays, takes) of step k, counted from 0."""

    @abstractmethod
    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        """N(ours S, 1) against N(theirs S, 1), rounded down, for `moves` of ours and theirs.

        S sums the shifts of the steps taken part in.  Where chance decides, they are at least 0.
        """

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

    by_chance = False

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        return np.zeros((1, 1)), np.ones((1, 1))

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        apart = moves[0] - moves[1]
        return MeansLowerProfile([1.0], [apart * abs(float(shifts @ np.ones(shifts.size)))])


@dataclass(frozen=True)
class AtSteps(Participation):
    """In these steps, counted from 1, and in no others."""

    by_chance = False

    positions: frozenset[int]

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        seen = float(k + 1 in self.positions)
        return np.full((1, 1), 1.0 - seen), np.full((1, 1), seen)

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        apart = moves[0] - moves[1]
        return MeansLowerProfile([1.0], [apart * abs(float(shifts @ self.expected(shifts.size)))])


@dataclass(frozen=True)
class AtDrawnPosition(Participation):
    """Participation at a position drawn once: `seen[position]` are its steps, counted from 1.

    With probability `left_out` the example never takes part.
    """

    seen: tuple[frozenset[int], ...]
    left_out: float = 0.0

    @property
    def start(self) -> Array:
        each = (1.0 - self.left_out) / len(self.seen)
        return np.append(np.full(len(self.seen), each), self.left_out)

    def step(self, k: int) -> tuple[Array, Array]:
        takes = np.array([*(float(k + 1 in steps) for steps in self.seen), 0.0])
        return np.diag(1.0 - takes), np.diag(takes)

    def expected(self, steps: int) -> Array:
        seen = np.zeros(steps)
        for chance, positions in zip(self.start[:-1], self.seen, strict=True):
            seen[[k - 1 for k in positions if k <= steps]] += chance
        return seen

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        steps = [[k - 1 for k in sorted(seen) if k <= shifts.size] for seen in self.seen]
        sums = [*(float(shifts[seen].sum()) for seen in steps), 0.0]
        weights = down(self.start, MILLIONS_OF_ROUNDINGS)
        if moves == _ADDED_IN_OURS:
            return MeansLowerProfile(weights.tolist(), sums)
        return mixed_means_profile(weights, np.array(sums), moves)


@dataclass(frozen=True)
class OncePerEpoch(Participation):
    """In one of `length` steps, anew in every epoch; in none with probability `left_out`.

    The states are: not yet in this epoch, and already.
    """

    length: int
    left_out: float = 0.0

    @property
    def start(self) -> Array:
        return np.array([1.0, 0.0])

    @property
    def each(self) -> float:
        """The probability of each step."""
        return (1.0 - self.left_out) / self.length

    def step(self, k: int) -> tuple[Array, Array]:
        done = k % self.length
        now = self.each / (1.0 - done * self.each)
        stays, takes = np.array([[1.0 - now, 0.0], [0.0, 1.0]]), np.array([[0.0, now], [0.0, 0.0]])
        if done == 0:  # everybody waits for the new epoch
            stays, takes = np.repeat(stays[:1], 2, axis=0), np.repeat(takes[:1], 2, axis=0)
        return stays, takes

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        return drawn_profile(shifts, self.each, moves, one_of=self.length)


@dataclass(frozen=True)
class EquallyOften(Participation):
    """In `often` of `length` steps, all sets being equally likely, anew after so many steps.

    The state is the number of participations that are left.
    """

    length: int
    often: int

    @property
    def start(self) -> Array:
        return np.append(np.zeros(self.often), 1.0)

    def step(self, k: int) -> tuple[Array, Array]:
        left = np.arange(self.often + 1)
        now = np.minimum(left / (self.length - k % self.length), 1.0)
        stays, takes = np.diag(1.0 - now), np.diag(now[1:], -1)
        if k % self.length == 0:  # everybody has drawn anew
            stays, takes = (np.repeat(one[-1:], left.size, axis=0) for one in (stays, takes))
        return stays, takes

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        # Early steps whose law would take long count as nothing: the sum is only smaller.
        most_steps = _MAX_WORK // (1_000 * (self.often + 1))
        known = np.where(np.arange(shifts.size) < shifts.size - most_steps, 0.0, shifts)
        most = most_of_sum(known, self.often / self.length)
        return smoothed_lower_profile(most, partial(self._characteristic, known), moves)

    def _characteristic(self, shifts: Array, frequencies: Array) -> NDArray[np.complex128]:
        """E e^{iuS}, by the chain; a draw whose shifts are all 0 is left out."""
        first = int(np.argmax(shifts > 0.0)) // self.length * self.length
        states = np.ones((frequencies.size, 1)) * self.start.astype(np.complex128)
        left = np.arange(self.often + 1)
        for k in range(first, shifts.size):
            if k % self.length == 0:  # everybody has drawn anew
                states = states.sum(axis=1, keepdims=True) * self.start
            taken = states * np.minimum(left / (self.length - k % self.length), 1.0)
            states -= taken
            states[:, :-1] += taken[:, 1:] * np.exp(1j * frequencies * shifts[k])[:, None]
        return np.asarray(states.sum(axis=1))


@dataclass(frozen=True)
class AnyStep(Participation):
    """In each step with this probability, independently."""

    probability: float

    def __post_init__(self) -> None:
        _check.number("probability", self.probability, at_least=0.0, at_most=1.0)

    @property
    def start(self) -> Array:
        return np.ones(1)

    def step(self, k: int) -> tuple[Array, Array]:
        return np.full((1, 1), 1.0 - self.probability), np.full((1, 1), self.probability)

    def lower_profile(self, shifts: Array, moves: Moves = _ADDED_IN_OURS) -> LowerProfile:
        return drawn_profile(shifts, self.probability, moves)


def participation(run: TrainingRun, *, position: int | None = None) -> Participation:
    """The participation of one example in the batches of the run.

    In a fixed order `position` is that of the example: by default the one that is seen last.  An
    order that is released is ignored, which makes the lower bound smaller.
    """
    rule = run.batches
    match rule.resampling:
        case Resampling.NEVER:
            return _at_position(run, position)
        case Resampling.ONCE:
            positions = range(rule.batches_per_epoch)
            seen = tuple(_steps_of(rule, i, run.steps) for i in positions)
            return AtDrawnPosition(seen, left_out(rule))
        case Resampling.EACH_EPOCH:
            return OncePerEpoch(rule.batches_per_epoch, left_out(rule))
        case Resampling.EACH_FEW_EPOCHS:
            length = rule.steps_per_draw
            return EquallyOften(length, rule.most_participations(length))
        case Resampling.EACH_STEP:
            return AnyStep(probability_of_a_step(rule))
        case _:
            assert_never(rule.resampling)


def _at_position(run: TrainingRun, position: int | None) -> AtSteps:
    """Participation at a position of a fixed order, or at the one that is seen last."""
    positions = range(run.batches.position_count(run.steps))
    if position is None:
        position = max(
            positions, key=lambda i: int(run.batches.participations(i, run.steps).max(initial=-1))
        )
    _check.count("position", position, at_least=0, at_most=len(positions) - 1)
    return AtSteps(_steps_of(run.batches, position, run.steps))


def _steps_of(rule: BatchRule, position: int, steps: int) -> frozenset[int]:
    return frozenset((rule.participations(position, steps) + 1).tolist())


def left_out(rule: BatchRule) -> float:
    """The chance that an example fills no batch of an epoch."""
    return max(1.0 - rule.batches_per_epoch * rule.batch_size / rule.examples, 0.0)


def probability_of_a_step(rule: BatchRule) -> float:
    """The probability that a step sees an example, for a rule that draws every batch anew."""
    if rule.resampling is not Resampling.EACH_STEP:
        raise InvalidType("batches", rule, must_be="drawn anew every step")
    return cast(SampledRule, rule).probability
