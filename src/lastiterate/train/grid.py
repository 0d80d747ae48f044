"""The grids that iterates and noise lie on: one unit for every step, a share of its noise.

The noise of a step in parameters is step size times noise on gradients, rounded up.  Its unit is
2^-bits of it.  A step without noise has the unit of the next that has some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate._numerics.rounding import Array, ulps, up
from lastiterate.run.training_run import TrainingRun

BITS = 40  # unless whole numbers would overflow
LEAST_BITS = 8
WHOLE_BITS = 62  # of whole numbers that cannot overflow when three of them are added


@dataclass(frozen=True, eq=False)
class Grid:
    """Step sizes, noise and units of a run, or of several of which each goes on from the last.

    Noise on release is a step of size 0.
    """

    sizes: Array
    noises: Array
    bits: int

    @cached_property
    def units(self) -> Array:
        """The unit of each step."""
        return np.asarray(_of_the_next(self.noises) * 2.0**-self.bits)

    @property
    def least_noise(self) -> float:
        """The least that is not 0."""
        return float(self.noises[self.noises > 0.0].min())


def grid_of(runs: Sequence[TrainingRun], bits: int) -> Grid:
    """The grid of runs of which each goes on from what the one before published."""
    sizes: list[Array] = []
    noises: list[Array] = []
    for run in runs:
        size = np.broadcast_to(np.asarray(run.step_size, dtype=np.float64), run.steps)
        noise = np.broadcast_to(np.asarray(run.noise_std, dtype=np.float64), run.steps)
        sizes += [size]
        noises += [up(size * noise, ulps(1))]
        if run.release_noise_std > 0.0:
            sizes += [np.zeros(1)]
            noises += [np.array([run.release_noise_std])]
    return Grid(np.concatenate(sizes), np.concatenate(noises), bits)


def publications(runs: Sequence[TrainingRun]) -> list[int]:
    """The number of steps, noise on release included, until each run ends and publishes."""
    lengths = [run.steps + (run.release_noise_std > 0.0) for run in runs]
    return [int(end) for end in np.cumsum(lengths)]


def _of_the_next(noises: Array) -> Array:
    """Each noise, or the next that is not 0; the last there is, where none follows."""
    known = np.flatnonzero(noises > 0.0)
    following = np.searchsorted(known, np.arange(noises.size))
    return np.asarray(noises[known[np.minimum(following, known.size - 1)]])
