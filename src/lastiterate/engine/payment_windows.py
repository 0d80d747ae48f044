"""Which windows and bulk groups a linear plan has, and what shares of the noise they get."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, down
from lastiterate.engine.linear_plan import RELEASE, Group, Plan, Stretch

_ZONES = 5  # in which all blocks have the same share
_LARGEST_SQUARE = 8.0
_BRIEF = 0.7  # memories; in shorter runs everything is paid in windows
_FIRST_EDGES, _BETWEEN_EDGES = (0.5, 0.7, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0), 0.4  # memories
_MOST_BLOCKS = 500
_LEAST_RATIO = 1e-3
_RESERVED = (0.0, 0.01, 0.03, 0.1)  # of the ages up to the first edge


@dataclass(frozen=True)
class Shape:
    """The choices: any is valid.

    Windows grow by the factor `growth` up to `block` steps and end at age `edges[0]`; what is older
    is in bulk groups, which begin at the ages `edges` and use no noise younger than `reserved`.
    """

    block: int
    growth: float
    edges: tuple[int, ...]
    reserved: int = 0


@lru_cache(maxsize=64)
def best_plan(
    *, gap: float, steps: int, probability: float, ratio: float, release: float
) -> Plan:
    """The cheapest of a few dozen plans: first where the bulk begins, then how long blocks are."""

    def plan(shape: Shape) -> Plan:
        return plan_of_shape(shape, gap=gap, steps=steps, ratio=ratio, release=release)

    def cost(shape: Shape) -> float:
        return _cost(plan(shape), probability, ratio)

    block = max(ratio, _LEAST_RATIO)
    best = min((_shape(edges, block, release) for edges in _edges(gap, steps)), key=cost)
    for _ in range(2):
        longer = [_shape(best.edges, block * 2.0**i, release) for i in range(-3, 5)]
        best = min([best, *dict.fromkeys(longer)], key=cost)
        kept = [replace(best, reserved=math.floor(part * best.edges[0])) for part in _RESERVED]
        best = min([best, *dict.fromkeys(kept)], key=cost)
    return plan(best)


def _edges(gap: float, steps: int) -> list[tuple[int, ...]]:
    """Windows only, or bulk groups from several ages on."""
    log_c = log_of(gap)
    found: list[tuple[int, ...]] = [(steps,)]
    if not steps * -log_c > _BRIEF:
        return found
    memory = -1.0 / log_c
    for first, bulks in product(_FIRST_EDGES, (1, 2, 4)):
        ages = (max(1, round((first + i * _BETWEEN_EDGES) * memory)) for i in range(bulks))
        edges = tuple(dict.fromkeys(age for age in ages if age < steps))
        found += [edges] if edges else []
    return list(dict.fromkeys(found))


def _shape(edges: tuple[int, ...], ratio: float, release: float) -> Shape:
    end = edges[0]
    block = max(ratio * math.sqrt(end) / 2.0, end / _MOST_BLOCKS, 1.0 + release)
    block = max(1, math.floor(min(block, end / 4.0)))
    return Shape(block, 2.0, edges, reserved=math.floor(_RESERVED[1] * end))


def _cost(plan: Plan, probability: float, ratio: float) -> float:
    """About the logarithm of the mean likelihood ratio, for rare participations."""
    total = 0.0
    log_c = log_of(plan.gap)
    for group in plan.groups:
        arriving = probability * sum_of_powers(log_c, group.count)
        square = (plan.size(group) * ratio) ** 2
        total += group.times * arriving * arriving * math.expm1(min(square, 50.0))
    return total


@dataclass(frozen=True)
class _Window:
    first: int
    count: int
    payers: int  # the number of the stretch
    times: int = 1


def plan_of_shape(
    shape: Shape, *, gap: float, steps: int, ratio: float, release: float
) -> Plan:
    """The plan with shares in proportion to what is paid on average."""
    log_c = log_of(gap)
    stretches, windows = _windows(shape, release)
    ends = [*shape.edges, steps]
    last_used = stretches[-1].last
    for edge in shape.edges:
        if last_used < min(edge, steps - 1):
            stretches.append(Stretch(last_used + 1, min(edge, steps - 1)))
            last_used = stretches[-1].last
    bulk = [(a, b) for a, b in zip(ends, ends[1:], strict=False) if a < b]
    variances = [_variance(log_c, stretch, release) for stretch in stretches]
    weights: list[dict[int, float]] = [{} for _ in stretches]  # by group; windows are -1
    for window in windows:
        mass = power(log_c, window.first) * sum_of_powers(log_c, window.count * window.times)
        for number in ([0, window.payers] if window.first == 0 and release > 0.0 else [window.payers]):
            one = variances[number] / window.times
            square = min((ratio * power(log_c, window.first)) ** 2 / max(one, 1e-300), _LARGEST_SQUARE)
            urgency = math.sqrt(math.expm1(square) / square) if square > 0.0 else 1.0
            part = variances[number] / (release + 1.0) if window.first == 0 else 1.0
            weights[number][-1] = mass * urgency * part
    for index, (start, end) in enumerate(bulk):
        mass = power(log_c, start) * sum_of_powers(log_c, end - start)
        usable = [
            n
            for n, stretch in enumerate(stretches)
            if (shape.reserved <= stretch.last or stretch.first == RELEASE) and stretch.last <= start
        ]
        whole = math.fsum(variances[n] for n in usable)
        for number in usable:
            if variances[number] > 0.0:
                weights[number][index] = mass * variances[number] / whole
    shares = [_normalised(one) for one in weights]
    groups = []
    for window in windows:
        numbers = [0, window.payers] if window.first == 0 and release > 0.0 else [window.payers]
        paid = tuple((n, shares[n][-1]) for n in numbers)
        groups.append(Group(window.first, window.count, paid, window.times))
    for index, (start, end) in enumerate(bulk):
        paid = tuple((n, one[index]) for n, one in enumerate(shares) if index in one)
        groups.append(Group(start, end - start, paid))
    return Plan(gap, steps, release, tuple(stretches), tuple(groups))


def _normalised(weights: dict[int, float]) -> dict[int, float]:
    total = math.fsum(weights.values())
    return {key: down(one / total, THOUSANDS_OF_ROUNDINGS) for key, one in weights.items()}


def _variance(log_c: float, stretch: Stretch, release: float) -> float:
    if stretch.first == RELEASE:
        return release
    count = stretch.last - stretch.first + 1
    return power(2.0 * log_c, stretch.first) * sum_of_powers(2.0 * log_c, count)


def _windows(shape: Shape, release: float) -> tuple[list[Stretch], list[_Window]]:
    """Windows of arrivals up to the first edge, each with the stretch that pays it."""
    end = shape.edges[0]
    stretches = [Stretch(RELEASE, RELEASE), Stretch(0, 0)]
    count = min(max(1, int(1.0 + release)), shape.block, end)
    windows = [_Window(0, count, 1)]
    age, size = count, count
    while age < end:
        # The noise of the ages since the last payers, the window's own youngest age included.
        payers = age - stretches[-1].last
        blocks = (end - age) // shape.block if payers == shape.block else 0
        if blocks >= 2:
            per_zone = -(-blocks // _ZONES)
            while blocks:
                times = min(per_zone, blocks)
                first = stretches[-1].last + 1
                stretches.append(Stretch(first, first + times * shape.block - 1, times))
                windows.append(_Window(age, shape.block, len(stretches) - 1, times))
                age += times * shape.block
                blocks -= times
            size = shape.block
            continue
        size = min(max(int(shape.growth * size), size + 1), shape.block, end - age)
        stretches.append(Stretch(stretches[-1].last + 1, age))
        windows.append(_Window(age, size, len(stretches) - 1))
        age += size
    return stretches, windows
