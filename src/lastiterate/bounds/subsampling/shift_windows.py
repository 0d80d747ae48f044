"""Which windows and bulk groups a linear plan has, and what shares of the noise they get."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, down
from lastiterate.bounds.subsampling.linear_plan import RELEASE, Group, Plan, Stretch

_GROWTH = 2  # of windows, from the end on
_ZONES = 5  # in which all blocks have the same share
_MOST_BLOCKS = 500
_BITS = 6
_LARGEST_SQUARE = 8.0
_BRIEF, _LONG = 0.7, 5.0  # memories; in shorter, or no longer runs all may be paid in windows
_FIRST_EDGES, _BETWEEN_EDGES = (0.5, 0.7, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0), 0.4  # memories
_BULKS = (1, 2, 4)
_CAPPED = (0.5, 1.0, 2.0, 4.0)
_RESERVED = (0.0, 0.01, 0.03, 0.1)  # of the ages up to the first edge


@dataclass(frozen=True)
class Shape:
    """The choices: any is valid.

    Windows grow from `last` to `block` steps and end at age `edges[0]`; what is older is in bulk
    groups, which begin at the ages `edges` and use no noise younger than `reserved`.  The oldest
    brings no more than `full` steps do on average.
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
) -> Shape:
    """The cheapest of a few dozen: first where the bulk begins, then how long blocks are.

    The oldest group never brings more than `cap` arrivals.
    """

    def cost(shape: Shape) -> float:
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
    """Windows only, or bulk groups from several ages on.

    As much as the oldest group may bring arrives, on average, in `full` steps.
    """
    log_c = log_of(gap)
    windows_only = (steps,)
    capped = [(max(1, math.floor(part * full)),) for part in _CAPPED if part * full < steps]
    if not steps * -log_c > _BRIEF:
        return [windows_only, *capped]
    found: list[tuple[int, ...]] = [windows_only] if steps * -log_c < _LONG else []
    memory = -1.0 / log_c
    for first, bulks in product(_FIRST_EDGES, _BULKS):
        apart = _round(max(1, math.floor(_BETWEEN_EDGES * memory)))
        start = max(1, math.floor(first * memory))
        edges = tuple(age for age in range(start, start + bulks * apart, apart) if age < steps)
        found += [edges] if edges else []
    return list(dict.fromkeys([*found, *capped])) or [windows_only]


def _shape(edges: tuple[int, ...], ratio: float, release: float) -> Shape:
    end = edges[0]
    block = max(ratio * math.sqrt(end) / 2.0, end / _MOST_BLOCKS, 1.0 + release)
    block = _round(max(1, math.floor(min(block, end / 4.0))))
    last = min(math.floor(1.0 + release), block)
    return Shape(block, edges, math.floor(_RESERVED[1] * end), last)


def _round(count: int) -> int:
    """A number that can be halved until few are left, as the law of what arrives is computed."""
    spare = max(count.bit_length() - _BITS, 0)
    return count >> spare << spare


def _cost(plan: Plan, probability: float, ratio: float, cap: float) -> float:
    """About the logarithm of the mean likelihood ratio, for rare participations."""
    total = 0.0
    log_c = log_of(plan.gap)
    for group in plan.groups:
        arriving = probability * sum_of_powers(log_c, group.count)
        if plan.is_oldest(group):
            arriving = min(arriving, cap)
        square = (plan.size(group) * ratio) ** 2
        total += group.times * arriving * arriving * math.expm1(min(square, 50.0))
    return total


@dataclass(frozen=True)
class _Claim:
    """Arrivals, and the weights with which they claim shares of stretches of noise."""

    first: int
    count: int
    weights: dict[int, float]
    times: int = 1


def plan_of_shape(shape: Shape, *, gap: float, steps: int, ratio: float, release: float) -> Plan:
    """The plan with shares in proportion to what is paid on average."""
    log_c = log_of(gap)
    stretches, windows = _windows(shape)
    for edge in shape.edges:
        youngest, oldest = stretches[-1].last + 1, min(edge, steps - 1)
        stretches += [Stretch(youngest, oldest)] if youngest <= oldest else []
    variances = [_variance(log_c, stretch, release) for stretch in stretches]
    claims = [_urgent(window, log_c, variances, ratio) for window in windows]
    for start, end in pairwise((*shape.edges, steps)):
        if start < end:
            usable = {
                number: variances[number]
                for number, stretch in enumerate(stretches)
                if stretch.last <= start
                and (stretch.first == RELEASE or stretch.last >= shape.reserved)
            }
            most = shape.full if end == steps else math.inf
            claims.append(_in_proportion(start, end - start, log_c, usable, most=most))
    return Plan(gap, steps, release, tuple(stretches), _granted(claims, len(stretches)))


def _urgent(claim: _Claim, log_c: float, variances: list[float], ratio: float) -> _Claim:
    """A window's, more if its arrivals are large for its noise."""
    usable = {number: variances[number] for number in claim.weights}
    plain = _in_proportion(claim.first, claim.count, log_c, usable, claim.times)
    one = math.fsum(usable.values()) / claim.times
    square = min((ratio * power(log_c, claim.first)) ** 2 / one, _LARGEST_SQUARE)
    urgency = math.sqrt(math.expm1(square) / square) if square > 0.0 else 1.0
    return replace(plain, weights={n: urgency * one for n, one in plain.weights.items()})


def _in_proportion(
    first: int,
    count: int,
    log_c: float,
    usable: dict[int, float],
    times: int = 1,
    most: float = math.inf,
) -> _Claim:
    """A claim for the average shift, to all usable noise in proportion to its variance."""
    mass = power(log_c, first) * min(sum_of_powers(log_c, count * times), most)
    whole = math.fsum(usable.values())
    weights = {n: mass * (one / whole) for n, one in usable.items() if one > 0.0}
    return _Claim(first, count, weights, times)


def _granted(claims: list[_Claim], stretches: int) -> tuple[Group, ...]:
    totals = [math.fsum(claim.weights.get(n, 0.0) for claim in claims) for n in range(stretches)]
    return tuple(
        Group(
            claim.first,
            claim.count,
            tuple(
                (n, down(weight / totals[n], THOUSANDS_OF_ROUNDINGS))
                for n, weight in claim.weights.items()
            ),
            claim.times,
        )
        for claim in claims
    )


def _variance(log_c: float, stretch: Stretch, release: float) -> float:
    if stretch.first == RELEASE:
        return release
    count = stretch.last - stretch.first + 1
    return power(2.0 * log_c, stretch.first) * sum_of_powers(2.0 * log_c, count)


def _windows(shape: Shape) -> tuple[list[Stretch], list[_Claim]]:
    """Windows of arrivals up to the first edge, each with the stretches that pay it."""
    end = shape.edges[0]
    stretches = [Stretch(RELEASE, RELEASE), Stretch(0, 0)]
    size = min(shape.last, shape.block, end)
    windows = [_Claim(0, size, {0: 1.0, 1: 1.0})]
    age = size
    while age < end:
        # The noise of the ages since the last payers, the window's own youngest age included.
        youngest = stretches[-1].last + 1
        if age - youngest + 1 == shape.block <= (end - age) // 2:
            blocks = (end - age) // shape.block
            for times in _split(blocks):
                youngest = stretches[-1].last + 1
                stretches.append(Stretch(youngest, youngest + times * shape.block - 1, times))
                windows.append(_Claim(age, shape.block, {len(stretches) - 1: 1.0}, times))
                age += times * shape.block
            size = shape.block
        else:
            size = min(_GROWTH * size, shape.block, end - age)
            stretches.append(Stretch(youngest, age))
            windows.append(_Claim(age, size, {len(stretches) - 1: 1.0}))
            age += size
    return stretches, windows


def _split(blocks: int) -> list[int]:
    """Into zones of about equal length."""
    zones = min(_ZONES, blocks)
    return [(blocks * (i + 1)) // zones - (blocks * i) // zones for i in range(zones)]
