"""Groups of the positions that an example may have in each of the last epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.run.training_run import TrainingRun


@dataclass(frozen=True)
class PositionGroup:
    """Consecutive steps, counted from the window's first, in one of which an example takes part.

    None are the steps of an example that sits out the epoch.
    """

    steps: range | None
    weight: float
    alone: bool = False  # whether the example takes part in the single step for certain


@dataclass(frozen=True)
class Window:
    """The last epochs of a run: for each the groups of positions, and all choices among them."""

    steps: int
    epochs_before: int
    epochs: tuple[tuple[PositionGroup, ...], ...]

    def choices(self) -> IntArray:
        """One row for each choice of a group in every epoch."""
        sizes = [len(groups) for groups in self.epochs]
        rest, columns = np.arange(math.prod(sizes)), []
        for size in sizes[::-1]:  # the last epoch's choice changes first
            columns.append(rest % size)
            rest = rest // size
        return np.stack(columns[::-1], axis=1)

    def weights(self, choices: IntArray) -> Array:
        """The probability of each choice."""
        columns = [
            np.array([group.weight for group in groups])[choices[:, k]]
            for k, groups in enumerate(self.epochs)
        ]
        return np.asarray(np.prod(columns, axis=0))


def last_epochs(run: TrainingRun, most_choices: int, most_steps: int) -> Window:
    """The window of the last epochs that has at most so many choices and about so many steps.

    The later an epoch, the more groups it has; the oldest have one, charged as its worst.
    """
    length = run.batches.batches_per_epoch
    total = -(-run.steps // length)
    epochs: list[tuple[PositionGroup, ...]] = []
    first, left = run.steps, float(most_choices)
    while len(epochs) < total:
        begin = (total - len(epochs) - 1) * length
        size = first - begin
        if epochs and run.steps - begin > most_steps:
            break
        count = max(1, min(size, math.isqrt(int(left)) if size > 3 else int(left)))
        groups = _groups(run, range(begin, first), count)
        left /= len(groups)
        epochs.append(groups)
        first = begin
    moved = tuple(
        tuple(_counted_from(first, group) for group in groups) for groups in reversed(epochs)
    )
    return Window(run.steps - first, first // length, moved)


def _counted_from(first: int, group: PositionGroup) -> PositionGroup:
    if group.steps is None:
        return group
    steps = range(group.steps.start - first, group.steps.stop - first)
    return PositionGroup(steps, group.weight, group.alone)


def _groups(run: TrainingRun, steps: range, count: int) -> tuple[PositionGroup, ...]:
    """A number of groups of the positions in these steps; the latest are the smallest."""
    rule = run.batches
    edges = _edges(len(steps), count, since_end=run.steps - steps.stop)
    stretches = [steps[a:b] for a, b in pairwise(edges)]
    weights = [len(one) * rule.share for one in stretches]
    whole = len(steps) == rule.batches_per_epoch
    absent = 0.0 if whole and rule.examples % rule.batch_size == 0 else 1.0 - math.fsum(weights)
    alone = [len(one) == 1 for one in stretches]
    missing: list[PositionGroup] = []
    if whole and absent > 0.0:  # few are left over: as if they were in the oldest group
        weights[0] += absent
        alone[0] = False
    elif absent > 0.0:
        missing = [PositionGroup(None, absent)]
    found = [
        PositionGroup(one, weight, single)
        for one, weight, single in zip(stretches, weights, alone, strict=True)
    ]
    return (*missing, *found)


def _edges(size: int, count: int, since_end: int) -> list[int]:
    """Edges of groups, the shorter the nearer to the end of the run."""
    if count >= size:
        return list(range(size + 1))
    ages = since_end + size / (4.0 * count) + np.array([0.0, size])
    spread = np.geomspace(ages[0], ages[1], count + 1) - ages[0]
    edges = size - np.unique(np.rint(spread).astype(int))[::-1]
    edges[0], edges[-1] = 0, size
    return [int(edge) for edge in np.unique(edges)]
