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

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise, product

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, down, up

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


# The choice of a linear plan: its windows, its bulk groups and their shares of the noise.

_GROWTH = 2  # of windows, from the end on

_ZONES = 5  # groups of blocks with the same share of noise

_MOST_BLOCKS = 500

_BITS = 6  # significant ones of a length

_LARGEST_SQUARE = 8.0  # of a cost, for the urgency of a window

# In units of the memory -1/log c: shorter runs have windows only, and longer ones never do.
_BRIEF, _LONG = 0.7, 5.0

_FIRST_EDGES, _BETWEEN_EDGES = (0.5, 0.7, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0), 0.4

_BULKS = (1, 2, 4)  # numbers of bulk groups

_CAPPED = (0.5, 1.0, 2.0, 4.0)  # first edges where a domain caps the oldest group

_RESERVED = (0.0, 0.01, 0.03, 0.1)  # of the ages up to the first edge


@dataclass(frozen=True)
class PlanShape:
    """The shape of a plan; any is valid.

    Windows grow from `last` to `block` steps and end at age `edges[0]`.  Bulk groups begin at the
    ages `edges` and use no noise younger than `reserved`.  The oldest has no more than `full`
    steps have on average.
    """

    block: int
    edges: tuple[int, ...]
    reserved: int = 0
    last: int = 1
    full: float = math.inf


@lru_cache(maxsize=64)
def best_shape(
    *,
    gap: float,
    steps: int,
    probability: float,
    ratio: float,
    release: float,
    cap: float = math.inf,
) -> PlanShape:
    """The shape of least cost among a few dozen: first the edges, then the length of blocks.

    The oldest group never has more than `cap` participations.
    """

    def cost(shape: PlanShape) -> float:
        plan = plan_of_shape(shape, gap=gap, steps=steps, ratio=ratio, release=release)
        return _cost(plan, probability, ratio, cap)

    full = cap / probability
    edges = _edges(gap, steps, full)
    best = min((replace(_shape(one, ratio, release), full=full) for one in edges), key=cost)
    for _ in range(2):
        longer = [_shape(best.edges, ratio * 2.0**i, release) for i in range(-3, 5)]
        shapes = [replace(best, block=one.block, last=one.last) for one in dict.fromkeys(longer)]
        best = min(shapes, key=cost)
        reserved = [math.floor(part * best.edges[0]) for part in _RESERVED]
        best = min((replace(best, reserved=age) for age in dict.fromkeys(reserved)), key=cost)
    return best


def _edges(gap: float, steps: int, full: float) -> list[tuple[int, ...]]:
    """Candidates for the edges: windows only, or bulk groups from several ages on.

    The cap of the oldest group is reached, on average, in `full` steps.
    """
    log_c = log_of(gap)
    windows_only = (steps,)
    capped = [(max(1, math.floor(part * full)),) for part in _CAPPED if part * full < steps]
    if not steps * -log_c > _BRIEF:
        return [windows_only, *capped]
    candidates: list[tuple[int, ...]] = [windows_only] if steps * -log_c < _LONG else []
    memory = -1.0 / log_c
    for first, bulks in product(_FIRST_EDGES, _BULKS):
        apart = _round(max(1, math.floor(_BETWEEN_EDGES * memory)))
        start = max(1, math.floor(first * memory))
        edges = tuple(age for age in range(start, start + bulks * apart, apart) if age < steps)
        candidates += [edges] if edges else []
    return list(dict.fromkeys([*candidates, *capped])) or [windows_only]


def _shape(edges: tuple[int, ...], ratio: float, release: float) -> PlanShape:
    end = edges[0]
    block = max(ratio * math.sqrt(end) / 2.0, end / _MOST_BLOCKS, 1.0 + release)
    block = _round(max(1, math.floor(min(block, end / 4.0))))
    last = min(math.floor(1.0 + release), block)
    return PlanShape(block, edges, math.floor(_RESERVED[1] * end), last)


def _round(count: int) -> int:
    """A length that can be halved until few are left, as `discounted_sum` does."""
    spare = max(count.bit_length() - _BITS, 0)
    return count >> spare << spare


def _cost(plan: LinearPlan, probability: float, ratio: float, cap: float) -> float:
    """Roughly the logarithm of the mean likelihood ratio, for rare participations."""
    total = 0.0
    log_c = log_of(plan.gap)
    for group in plan.groups:
        mean = probability * sum_of_powers(log_c, group.count)
        if plan.is_oldest(group):
            mean = min(mean, cap)
        square = (plan.cost(group) * ratio) ** 2
        total += group.blocks * mean * mean * math.expm1(min(square, 50.0))
    return total


@dataclass(frozen=True)
class _Claim:
    """Participations, and the weights of their claims to noise, by index of `NoiseAges`."""

    first: int
    count: int
    weights: dict[int, float]
    blocks: int = 1


def plan_of_shape(
    shape: PlanShape, *, gap: float, steps: int, ratio: float, release: float
) -> LinearPlan:
    """The plan of this shape, with shares of noise in proportion to average shifts."""
    log_c = log_of(gap)
    noise, windows = _windows(shape)
    for edge in shape.edges:
        youngest, oldest = noise[-1].last + 1, min(edge, steps - 1)
        noise += [NoiseAges(youngest, oldest)] if youngest <= oldest else []
    variances = [_variance(log_c, ages, release) for ages in noise]
    claims = [_urgent(window, log_c, variances, ratio) for window in windows]
    for start, end in pairwise((*shape.edges, steps)):
        if start < end:
            usable = {
                number: variances[number]
                for number, ages in enumerate(noise)
                if ages.last <= start and (ages.first == RELEASE or ages.last >= shape.reserved)
            }
            most = shape.full if end == steps else math.inf
            claims.append(_in_proportion(start, end - start, log_c, usable, most=most))
    return LinearPlan(gap, steps, release, tuple(noise), _groups(claims, len(noise)))


def _urgent(claim: _Claim, log_c: float, variances: list[float], ratio: float) -> _Claim:
    """The claim of a window, larger if its participations are large for its noise."""
    usable = {number: variances[number] for number in claim.weights}
    plain = _in_proportion(claim.first, claim.count, log_c, usable, claim.blocks)
    one = math.fsum(usable.values()) / claim.blocks
    square = min((ratio * power(log_c, claim.first)) ** 2 / one, _LARGEST_SQUARE)
    urgency = math.sqrt(math.expm1(square) / square) if square > 0.0 else 1.0
    return replace(plain, weights={n: urgency * one for n, one in plain.weights.items()})


def _in_proportion(
    first: int,
    count: int,
    log_c: float,
    usable: dict[int, float],
    blocks: int = 1,
    most: float = math.inf,
) -> _Claim:
    """A claim for the average shift, to all usable noise in proportion to its variance."""
    mass = power(log_c, first) * min(sum_of_powers(log_c, count * blocks), most)
    whole = math.fsum(usable.values())
    weights = {n: mass * (one / whole) for n, one in usable.items() if one > 0.0}
    return _Claim(first, count, weights, blocks)


def _groups(claims: list[_Claim], noises: int) -> tuple[PlanGroup, ...]:
    """The groups with shares of noise in proportion to their claims."""
    totals = [math.fsum(claim.weights.get(n, 0.0) for claim in claims) for n in range(noises)]
    return tuple(
        PlanGroup(
            claim.first,
            claim.count,
            tuple(
                (n, down(weight / totals[n], THOUSANDS_OF_ROUNDINGS))
                for n, weight in claim.weights.items()
            ),
            claim.blocks,
        )
        for claim in claims
    )


def _variance(log_c: float, noise: NoiseAges, release: float) -> float:
    if noise.first == RELEASE:
        return release
    count = noise.last - noise.first + 1
    return power(2.0 * log_c, noise.first) * sum_of_powers(2.0 * log_c, count)


def _windows(shape: PlanShape) -> tuple[list[NoiseAges], list[_Claim]]:
    """The windows of participations up to the first edge, and the noise that shifts each."""
    end = shape.edges[0]
    noise = [NoiseAges(RELEASE, RELEASE), NoiseAges(0, 0)]
    size = min(shape.last, shape.block, end)
    windows = [_Claim(0, size, {0: 1.0, 1: 1.0})]
    age = size
    while age < end:
        # Noise up to the window's own youngest age that no younger window uses.
        youngest = noise[-1].last + 1
        if age - youngest + 1 == shape.block <= (end - age) // 2:
            for blocks in _zones((end - age) // shape.block):
                youngest = noise[-1].last + 1
                noise.append(NoiseAges(youngest, youngest + blocks * shape.block - 1, blocks))
                windows.append(_Claim(age, shape.block, {len(noise) - 1: 1.0}, blocks))
                age += blocks * shape.block
            size = shape.block
        else:
            size = min(_GROWTH * size, shape.block, end - age)
            noise.append(NoiseAges(youngest, age))
            windows.append(_Claim(age, size, {len(noise) - 1: 1.0}))
            age += size
    return noise, windows


def _zones(blocks: int) -> list[int]:
    """The numbers of blocks in zones of about equal length."""
    zones = min(_ZONES, blocks)
    return [(blocks * (i + 1)) // zones - (blocks * i) // zones for i in range(zones)]
