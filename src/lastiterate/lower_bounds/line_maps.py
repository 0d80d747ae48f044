"""Continuous piecewise-linear maps of the line: a gradient step on a one-dimensional loss.

A step of size eta on a loss f is x - eta f'(x), so its slopes are 1 - eta f'': a loss that is
m-strongly convex and M-smooth gives slopes in [1 - eta M, 1 - eta m].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter


@dataclass(frozen=True)
class PiecewiseLinear:
    """The map through (knots, values), with the given slopes outside the knots.

    Examples
    --------
    >>> hinge = PiecewiseLinear((0.0,), (0.0,), 0.0, 1.0)
    >>> hinge(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    left_slope: float
    right_slope: float

    def __post_init__(self) -> None:
        for name in ("knots", "values"):
            numbers = _check.numbers(name, getattr(self, name), at_least=-1e300)
            object.__setattr__(self, name, tuple(numbers.tolist()))
        if len(self.values) != len(self.knots):
            must_be = f"as many as the {len(self.knots)} knots"
            raise InvalidParameter("values", self.values, must_be=must_be)
        if any(not a < b for a, b in pairwise(self.knots)):
            raise InvalidParameter("knots", self.knots, must_be="increasing numbers")
        for name in ("left_slope", "right_slope"):
            object.__setattr__(self, name, _check.number(name, getattr(self, name)))

    def __call__(self, x: Array) -> Array:
        inside = np.interp(x, self.knots, self.values)
        left, right = np.minimum(x - self.knots[0], 0.0), np.maximum(x - self.knots[-1], 0.0)
        return np.asarray(inside + self.left_slope * left + self.right_slope * right)

    @property
    def slopes(self) -> tuple[float, ...]:
        """The slope of every piece, from left to right."""
        inside = np.diff(self.values) / np.diff(self.knots)
        return (self.left_slope, *inside.tolist(), self.right_slope)

    @property
    def kinks(self) -> tuple[float, ...]:
        """The knots at which the slope changes."""
        slopes = self.slopes
        return tuple(x for x, a, b in zip(self.knots, slopes, slopes[1:], strict=False) if a != b)

    @property
    def steepest(self) -> float:
        """The largest slope, in absolute value."""
        return max(abs(slope) for slope in self.slopes)

    def shifted(self, amount: float) -> PiecewiseLinear:
        """The map plus a constant."""
        values = tuple(value + amount for value in self.values)
        return PiecewiseLinear(self.knots, values, self.left_slope, self.right_slope)


def linear(slope: float, offset: float = 0.0) -> PiecewiseLinear:
    """x -> slope x + offset: a gradient step on a quadratic."""
    return PiecewiseLinear((0.0,), (offset,), slope, slope)


def bent(inner: float, outer: float, half_width: float, centre: float = 0.0) -> PiecewiseLinear:
    """Slope `inner` within `half_width` of the centre, which stays, and `outer` beyond."""
    reach = inner * half_width
    ends = (centre - half_width, centre + half_width)
    return PiecewiseLinear(ends, (centre - reach, centre + reach), outer, outer)


IDENTITY = linear(1.0)
