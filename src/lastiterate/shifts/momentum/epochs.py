"""The cost of a participation by its position in the last epoch, at worst over earlier ones.

Participations in earlier epochs are charged a little after the end of their epoch, in a direction
that serves all positions in it (`delay`): so one certificate holds for a fixed and for a shuffled
order.  Positions are told by their *tail*, the number of steps after them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, Array, up
from lastiterate.shifts.momentum.certificate import LinearRun
from lastiterate.shifts.momentum.delay import Delays
from lastiterate.shifts.momentum.recursion import Recursion
from lastiterate.shifts.momentum.recursion_mu import certified, none_beyond_floats

_SHARE_OF_TAIL = 6  # of a group's least tail: its delay


@dataclass(frozen=True)
class _Part:
    """A participation in one of the steps `first` .. `last`, from 1, charged in step `charged`."""

    name: str
    first: int
    last: int
    charged: int

    @property
    def is_exact(self) -> bool:
        """Whether the step is known, and the participation is charged in it."""
        return self.first == self.last == self.charged > 1


@dataclass(frozen=True)
class EpochTails:
    """The positions in the last epoch with tails from `least` to `most`.

    Several are charged together a little later, or, as `each` asks for, each in its own step.
    """

    least: int
    most: int
    each: bool = False


@dataclass(frozen=True)
class Energies:
    """Parts of mu^2 for a sensitivity of 1, each rounded up.

    `earlier` is that of all earlier epochs together, `group` that of any single position of the
    group, `other` that of any single one of the other positions.
    """

    earlier: float
    group: float
    other: float


@dataclass(frozen=True)
class MomentumEpochs:
    """Equal steps in epochs of `length` steps; the last epoch may be cut short.

    Where every position comes back after `length` steps, epochs may be counted from the end
    (`from_the_end`): each of them sees every position once, and the first one may be cut short.
    `noise` is that of the averaged gradient in every step.
    """

    recursion: Recursion
    curvature: tuple[float, float]
    noise: float
    release_noise: float
    length: int
    delay: int
    from_the_end: bool = False

    @property
    def earlier_epochs(self) -> int:
        """The number of epochs before the last one begins."""
        return (self.recursion.steps - 1) // self.length

    @property
    def last_length(self) -> int:
        """The number of steps of the last epoch."""
        if self.from_the_end:
            return min(self.recursion.steps, self.length)
        return self.recursion.steps - self.earlier_epochs * self.length

    @none_beyond_floats
    def energies(
        self, group: EpochTails | None, other: EpochTails | None = None, enough: float = 0.0
    ) -> Energies | None:
        """The energies of one certificate, or None where none was found.

        Every position of `group`, and of `other`, can be charged by it; None stands for no
        participation in the last epoch.  The search stops where all of them together have at most
        the energy `enough`.
        """
        parts = self._parts(group, other)
        if not parts:
            return Energies(0.0, 0.0, 0.0)
        steps = self.recursion.steps
        weights, directions = np.zeros(steps), np.zeros((steps, 3))
        for part in parts:
            direction = self._direction(part)
            if direction is None:
                return None
            weights[part.charged - 1] += 1.0
            directions[part.charged - 1] += direction
        alone = [p.charged - 1 for p in parts if p.is_exact and weights[p.charged - 1] == 1.0]
        delayed = weights > 0.0
        delayed[alone] = False
        found = certified(
            LinearRun(
                self.recursion,
                self.curvature,
                np.sqrt(weights),
                np.full(steps, self.noise),
                self.release_noise,
                delayed=delayed,
                directions=directions,
            ),
            enough,
        )
        if found is None:
            return None
        energies = np.zeros(steps)
        energies[-found.kappa.size :] = found.energies(np.ones(steps))
        earlier, of_group, of_other = (
            [float(energies[part.charged - 1]) for part in parts if part.name == name]
            for name in ("earlier", "group", "other")
        )
        total = up(math.fsum(earlier) + found.before, FEW_ROUNDINGS)
        if not (total >= 0.0 and np.all(energies >= 0.0)):  # nan, which a maximum may lose
            return None
        return Energies(total, max(of_group, default=0.0), max(of_other, default=0.0))

    def _parts(self, group: EpochTails | None, other: EpochTails | None) -> list[_Part]:
        """The parts of the run, with their charges."""
        steps = self.recursion.steps
        parts = []
        for epoch in range(1, self.earlier_epochs + 1):
            last = steps - self.last_length - (self.earlier_epochs - epoch) * self.length
            first = max(last - self.length + 1, 1)
            parts.append(_Part("earlier", first, last, last + min(self.delay, steps - last)))
        for name, tails in (("group", group), ("other", other)):
            if tails is not None:
                parts += self._parts_of(name, tails)
        return parts

    def _parts_of(self, name: str, tails: EpochTails) -> list[_Part]:
        steps = self.recursion.steps
        first, last = steps - tails.most, steps - tails.least
        if tails.each or first == last:
            return [_Part(name, step, step, step) for step in range(first, last + 1)]
        delay = min(self.delay, tails.least // _SHARE_OF_TAIL)
        return [_Part(name, first, last, last + delay)]

    def _direction(self, part: _Part) -> Array | None:
        """The direction that a participation in any step of the part adds where it is charged."""
        direction = self._delays.direction(part.charged - part.last, part.charged - part.first)
        if direction is None or part.first > 1:
            return direction
        first = self._delays.first_step_direction(part.charged - 1)
        # Both are multiples of one matrix, so the larger one is above both.
        return None if first is None else np.where(first[0] > direction[0], first, direction)

    @cached_property
    def _delays(self) -> Delays:
        return Delays(self.recursion, self.curvature)
