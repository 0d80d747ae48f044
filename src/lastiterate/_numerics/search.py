"""Searches that end on the safe side."""

from collections.abc import Callable


def least_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """A point where `holds`, within an ulp or two of where it begins to hold.

    `holds` must be true at `high` and, for tightness only, false below some point and true
    above it.  The result is always a point at which it was seen to hold.
    """
    while True:
        middle = low + (high - low) / 2
        if not low < middle < high:
            return high
        if holds(middle):
            high = middle
        else:
            low = middle
