r"""Plans that are linear in the participations, in groups that do not interfere.

An arrival of age a (it came a steps before the end) has shrunk to :math:`c^a`; the noise of age k
has variance :math:`c^{2k}`, and noise on release counts as `release` more.  An arrival may be paid
with noise of its own age or younger, and with the release.  A *group* pays all its arrivals in the
same proportion, with shares of the noise of some ages which no other group uses.  In units of that
noise it costs :math:`\sum_t V_t c^{a_t} / \sqrt S`, V the participations, S the variance it uses;
what different groups pay is orthogonal.

The groups: *windows*, from the end, one, two, four, .. up to a block of steps long, each of which
pays what arrived in the next older one; and *bulk* groups of what is older than all windows,
which are paid with all younger noise.  Every choice is a proof, once `Plan` has checked that no
noise is used twice and that nothing is paid before it arrives.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up

RELEASE = -1  # the age of the noise on release


@dataclass(frozen=True)
class Stretch:
    """The noise of the ages from `first` to `last`, in `times` blocks of equal length."""

    first: int
    last: int
    times: int = 1


@dataclass(frozen=True)
class Group:
    """The `count` arrivals from age `first` on, paid with shares of stretches of noise.

    `times` such groups follow one another, each paid with its own one of as many blocks.
    """

    first: int
    count: int
    shares: tuple[tuple[int, float], ...]
    times: int = 1


@dataclass(frozen=True)
class Plan:
    """Groups of all `steps` arrivals, and the stretches of noise that they use."""

    gap: float
    steps: int
    release: float
    stretches: tuple[Stretch, ...]
    groups: tuple[Group, ...]
    _log_c: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_log_c", log_of(self.gap))
        self._check_noise()
        self._check_arrivals()

    def variance(self, group: Group) -> float:
        """The variance of the noise that the group uses, rounded down."""
        total = math.fsum(
            share * self._variance(self.stretches[number], group.times)
            for number, share in group.shares
        )
        return down(total, MILLIONS_OF_ROUNDINGS)

    def is_oldest(self, group: Group) -> bool:
        """Whether it holds all arrivals from some age on, so that nothing else is then unpaid.

        On a bounded domain it brings no more than the diameter and one arrival.
        """
        return group.times == 1 and group.first + group.count == self.steps

    def size(self, group: Group) -> float:
        """The youngest arrival of the group over the noise that pays it, rounded up."""
        paying = self.variance(group)
        if not paying > 0.0:
            return math.inf
        return up(power(self._log_c, group.first) / math.sqrt(paying), MILLIONS_OF_ROUNDINGS)

    def _variance(self, stretch: Stretch, blocks: int) -> float:
        if stretch.first == RELEASE:
            return self.release
        count = (stretch.last - stretch.first + 1) // (stretch.times if blocks > 1 else 1)
        start = power(2.0 * self._log_c, stretch.first)
        return start * sum_of_powers(2.0 * self._log_c, count)

    def _check_noise(self) -> None:
        ages = sorted((stretch.first, stretch.last) for stretch in self.stretches)
        overlap = any(younger[1] >= older[0] for younger, older in pairwise(ages))
        used = [0.0] * len(self.stretches)
        for group in self.groups:
            for number, share in group.shares:
                used[number] += share
        if overlap or not all(0.0 <= share <= 1.0 for share in used):
            raise ValueError("the plan uses some noise twice")

    def _check_arrivals(self) -> None:
        expected = 0
        for group in sorted(self.groups, key=lambda one: one.first):
            if group.first != expected or group.count < 1:
                raise ValueError("the plan pays some arrivals twice or never")
            expected += group.count * group.times
            for number, _ in group.shares:
                self._check_payers(group, self.stretches[number])
        if expected != self.steps:
            raise ValueError("the plan pays some arrivals twice or never")

    def _check_payers(self, group: Group, stretch: Stretch) -> None:
        """With several blocks, those of the noise must keep up with those of the arrivals."""
        if group.times == 1:
            early = stretch.last > group.first
        else:
            length = stretch.last - stretch.first + 1
            early = (
                stretch.times != group.times
                or length != group.count * group.times
                or stretch.first + group.count - 1 > group.first
            )
        if early:
            raise ValueError("the plan pays some arrivals before they come")
