"""Searches that end on the safe side."""

import math
from collections.abc import Callable

from lastiterate._numerics.rounding import ulps

_LARGEST_EXCESS = 50.0  # only the sign of larger values is used
_RELATIVE_TOLERANCE = ulps(1 << 11)  # curves are rounded by more
_MAX_SLOW_ROUNDS = 3  # rounds that may fail to halve what is left
_OVERSHOOT_SHARE = 0.1  # of the way, where all points so far are on one side
_QUICK_TOLERANCE = 1e-3  # how exactly a quick function is solved
_COMMON_SLOPE_DISTANCE = 0.1  # of points that share one slope
_STEEPEST_SLOPE = 20.0  # that is believed, as is its inverse
_MAX_NEWTON_STEPS = 6


def least_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """A point where `holds`, within an ulp or two of where it begins to hold.

    `holds` must be true at `high` and, for tightness only, false below some point and true
    above it.  The result is always a point at which it was seen to hold.
    """
    return bracket(lambda x: not holds(x), low, high)[1]


def last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """A point where `holds`, within an ulp or two of where it ceases to: it holds at `low`."""
    return bracket(holds, low, high)[0]


def bracket(
    holds: Callable[[float], bool], low: float, high: float, *, apart: float = 0.0
) -> tuple[float, float]:
    """Points no farther `apart`, or neighbours: the first where `holds`, the second where not.

    It must hold at `low` and not at `high`; that is not tried.
    """
    while high - low > apart:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def least_below(curve: Callable[[float], float], target: float, low: float, high: float) -> float:
    """A point where a falling `curve` is at most `target`, within some ulps of the first such one.

    It must be above the target at `low` and not at `high`.  Where both are positive, their
    logarithms say where to look next; the result is always a point at which it was seen to hold.
    """

    def excess(x: float) -> float:
        value = curve(x)
        if value <= target:
            return math.log(value / target) if value > 0.0 < target else -_LARGEST_EXCESS
        return math.log(value / target) if 0.0 < target < value else _LARGEST_EXCESS

    return close_in(excess, low, excess(low), high, excess(high), 0.0, relative=_RELATIVE_TOLERANCE)


def last_count_true(holds: Callable[[int], bool], most: int) -> int:
    """The largest k <= most up to which `holds`, 0 if it fails at 1."""
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def least_met(
    excess: Callable[[float], float],
    start: float,
    *,
    tolerance: float,
    farthest: float,
    stride: float = 1.0,
) -> float | None:
    """The least x, to `tolerance`, at which a decreasing `excess` was seen at most 0.

    None where it is above 0 up to `farthest`; the search downwards ends at minus that.
    Values are taken for about as far as there is to go, but for at least `stride`, which is doubled
    every time, and at most 50.
    """
    low = high = start
    low_value = high_value = excess(start)
    upwards = downwards = stride
    while not high_value <= 0.0:  # nan is not met
        low, low_value = high, high_value
        high += min(max(upwards, high_value), _LARGEST_EXCESS)
        upwards *= 2.0
        if high > farthest:
            return None
        high_value = excess(high)
    while low_value <= 0.0:
        high, high_value = low, low_value
        low -= min(max(downwards, -low_value), _LARGEST_EXCESS)
        downwards *= 2.0
        if low < -farthest:
            return high
        low_value = excess(low)
    return close_in(excess, low, low_value, high, high_value, tolerance)


def about_met(
    excess: Callable[[float], float],
    quick: Callable[[float], float],
    start: float,
    *,
    tolerance: float,
    farthest: float,
    stride: float,
) -> float | None:
    """A point at which `excess` is about 0, where a `quick` function has nearly the same shape.

    None if there is none.  It is no more than a good start for `least_met`.
    """
    before, before_value = start, excess(start)
    off = before_value - quick(start)
    at = least_met(
        lambda x: quick(x) + off,
        start,
        tolerance=_QUICK_TOLERANCE,
        farthest=farthest,
        stride=stride,
    )
    for _ in range(_MAX_NEWTON_STEPS):
        if at is None:
            return None
        value = excess(at)
        if -tolerance < value <= 0.0:
            return at
        if abs(at - before) > _COMMON_SLOPE_DISTANCE or at == before:
            slope = (quick(at + _QUICK_TOLERANCE) - quick(at)) / _QUICK_TOLERANCE
        else:
            slope = (value - before_value) / (at - before)
        if not (-_STEEPEST_SLOPE < slope < -1.0 / _STEEPEST_SLOPE and abs(value) < _LARGEST_EXCESS):
            return at
        # A little to the safe side, so that the next point may be the last.
        before, before_value = at, value
        at = at - value / slope + 0.3 * tolerance
    return at


def close_in(
    excess: Callable[[float], float],
    low: float,
    low_value: float,
    high: float,
    high_value: float,
    tolerance: float,
    relative: float = 0.0,
) -> float:
    """A point where `excess` was seen at most 0, within the tolerance of one where it is above 0.

    `excess` must be above 0 at `low` and at most 0 at `high`.  The next point is the zero of the
    line through the last two points, or of the line through the ends, or halfway.  It is moved a
    little to the safe side, and the one after it to the other: two points around a root that is
    well known are the last ones.
    """
    before, last = (low, low_value), (high, high_value)
    slow, width = 0, high - low
    while high - low > (apart := max(tolerance, relative * abs(high))):
        middle = _zero(before, last)
        if not low < middle < high:
            middle = _zero((low, low_value), (high, high_value))
        elif (before[1] <= 0.0) == (last[1] <= 0.0):
            middle += _OVERSHOOT_SHARE * (middle - last[0])
        if high - middle < 0.5 * apart:
            middle = high - 0.9 * apart
        elif middle - low < 0.5 * apart:
            middle = low + 0.9 * apart
        else:
            middle += 0.3 * apart
        far = max(abs(low_value), abs(high_value)) >= _LARGEST_EXCESS
        slow = slow + 1 if high - low > 0.5 * width else 0
        width = high - low
        if far or slow >= _MAX_SLOW_ROUNDS or not low < middle < high:
            slow, middle = 0, low + (high - low) / 2
            if not low < middle < high:
                break
        value = excess(middle)
        before, last = last, (middle, value)
        if value <= 0.0:
            high, high_value = middle, value
        else:
            low, low_value = middle, value
    return high


def _zero(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The zero of the line through two points; nan where it has none."""
    fall = one[1] - other[1]
    return one[0] + (other[0] - one[0]) * one[1] / fall if fall != 0.0 else math.nan
