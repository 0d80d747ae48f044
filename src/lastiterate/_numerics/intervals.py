"""Arrays of intervals that surely contain the real numbers they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lastiterate._numerics.rounding import Array


@dataclass(frozen=True, eq=False)
class Interval:
    """The reals between `low` and `high`, entry by entry.

    Every operation is rounded to the nearest float and then moved outwards by one, so that the
    result contains that of all reals inside its operands.
    """

    low: Array
    high: Array

    @classmethod
    def exact(cls, values: ArrayLike) -> Interval:
        """The intervals that hold just these floats."""
        array = np.asarray(values, dtype=np.float64)
        return cls(array, array)

    def __add__(self, other: Interval) -> Interval:
        return _outwards(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return _outwards(self.low - other.high, self.high - other.low)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        products = np.stack(
            np.broadcast_arrays(
                self.low * other.low,
                self.low * other.high,
                self.high * other.low,
                self.high * other.high,
            )
        )
        return _outwards(products.min(axis=0), products.max(axis=0))

    def __getitem__(self, which: Any) -> Interval:
        return Interval(self.low[which], self.high[which])

    @property
    def is_not_negative(self) -> bool:
        """Whether no entry can be below 0; False where one is nan."""
        return bool(np.all(self.low >= 0.0))


def _outwards(low: Array, high: Array) -> Interval:
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
