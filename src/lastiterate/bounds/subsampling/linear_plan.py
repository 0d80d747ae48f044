r"""Shift plans that are linear in the participations, in orthogonal groups.

In units of the end, a participation of age a (a steps before the end) has size :math:`c^a`, the
noise of age k has variance :math:`c^{2k}`, and noise on release counts as `release` more.  A
participation may be shifted away by noise of its own age or younger, and by the release.  A *group*
shifts all its participations in the same proportions, with shares of the noise of some ages that no
other group uses.  Its cost is :math:`\sum_t V_t c^{a_t} / \sqrt S`, where V are the participations
and S is the variance it uses.  Shifts of different groups are orthogonal.

There are two kinds of groups.  *Windows* are one, two, four, .. up to a block of steps long,
counted from the end, and the noise of each shifts the participations of the next older one.  *Bulk*
groups have the participations older than all windows, shifted by all younger noise.  Every plan is
a proof (`docs/tightness.md#poisson-batches`), once `LinearPlan` has checked that no noise is used
twice and that no participation is shifted away before it happens.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up

RELEASE = -1  # the age of the noise on release


@dataclass(frozen=True)
class NoiseAges:
    """The noise of the ages from `first` to `last`, in `blocks` of equal length."""

    first: int
    last: int
    blocks: int = 1


@dataclass(frozen=True)
class PlanGroup:
    """The `count` participations from age `first` on, and their shares of `NoiseAges`.

    `blocks` such groups follow one another, each with its own one of as many blocks of noise.
    """

    first: int
    count: int
    shares: tuple[tuple[int, float], ...]
    blocks: int = 1


@dataclass(frozen=True)
class LinearPlan:
    """Groups of the participations of all `steps`, and the ages of noise that they use."""

    gap: float
    steps: int
    release: float
    noise: tuple[NoiseAges, ...]
    groups: tuple[PlanGroup, ...]
    _log_c: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_log_c", log_of(self.gap))
        self._check_noise()
        self._check_participations()

    def variance(self, group: PlanGroup) -> float:
        """The variance of the noise that the group uses, rounded down."""
        total = math.fsum(
            share * self._variance(self.noise[number], group.blocks)
            for number, share in group.shares
        )
        return down(total, MILLIONS_OF_ROUNDINGS)

    def is_oldest(self, group: PlanGroup) -> bool:
        """Whether the group has all participations from some age on.

        Then no other distance is left at that age, and on a bounded domain the group has no more
        than the diameter and one participation.
        """
        return group.blocks == 1 and group.first + group.count == self.steps

    def cost(self, group: PlanGroup) -> float:
        """The cost of the youngest participation of the group, rounded up."""
        variance = self.variance(group)
        if not variance > 0.0:
            return math.inf
        return up(power(self._log_c, group.first) / math.sqrt(variance), MILLIONS_OF_ROUNDINGS)

    def _variance(self, noise: NoiseAges, blocks: int) -> float:
        if noise.first == RELEASE:
            return self.release
        count = (noise.last - noise.first + 1) // (noise.blocks if blocks > 1 else 1)
        start = power(2.0 * self._log_c, noise.first)
        return start * sum_of_powers(2.0 * self._log_c, count)

    def _check_noise(self) -> None:
        ages = sorted((noise.first, noise.last) for noise in self.noise)
        overlap = any(younger[1] >= older[0] for younger, older in pairwise(ages))
        used = [0.0] * len(self.noise)
        for group in self.groups:
            for number, share in group.shares:
                used[number] += share
        if overlap or not all(0.0 <= share <= 1.0 for share in used):
            raise ValueError("the plan uses some noise twice")

    def _check_participations(self) -> None:
        expected = 0
        for group in sorted(self.groups, key=lambda one: one.first):
            if group.first != expected or group.count < 1:
                raise ValueError("the plan shifts some participations twice or never")
            expected += group.count * group.blocks
            for number, _ in group.shares:
                self._check_ages(group, self.noise[number])
        if expected != self.steps:
            raise ValueError("the plan shifts some participations twice or never")

    def _check_ages(self, group: PlanGroup, noise: NoiseAges) -> None:
        """Refuse noise older than the group; several blocks must match one by one."""
        if group.blocks == 1:
            early = noise.last > group.first
        else:
            length = noise.last - noise.first + 1
            early = (
                noise.blocks != group.blocks
                or length != group.count * group.blocks
                or noise.first + group.count - 1 > group.first
            )
        if early:
            raise ValueError("the plan shifts some participations before they happen")
