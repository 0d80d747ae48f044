"""Which windows and bulk groups a linear plan has, and what shares of the noise they get."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, down
from lastiterate.engine.linear_plan import RELEASE, Group, Plan, Stretch

_ZONES = 5  # in which all blocks have the same share
_LARGEST_SQUARE = 8.0
_BRIEF = 0.05  # memories; in shorter runs everything is paid in windows
_FIRST_EDGE, _BETWEEN_EDGES, _BULKS = 1.3, 0.4, 4
_MOST_BLOCKS = 500
_RESERVED = 0.01


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


def usual_shape(*, gap: float, steps: int, ratio: float, release: float) -> Shape:
    """Found by trial: about the least cost of runs long and short."""
    log_c = log_of(gap)
    memory = -1.0 / log_c if log_c < 0.0 else math.inf
    edges: tuple[int, ...] = (steps,)
    if steps > _BRIEF * memory:
        first = _FIRST_EDGE * memory * math.log(2.0 / (1.0 + power(log_c, steps)))
        ages = (max(1, round(first + i * _BETWEEN_EDGES * memory)) for i in range(_BULKS))
        edges = tuple(dict.fromkeys(age for age in ages if age < steps)) or (steps,)
    block = max(ratio * math.sqrt(edges[0]) / 2.0, edges[0] / _MOST_BLOCKS, 1.0 + release)
    block = max(1, math.floor(min(block, edges[0] / 4.0)))
    return Shape(block, 2.0, edges, reserved=math.floor(_RESERVED * edges[0]))


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
