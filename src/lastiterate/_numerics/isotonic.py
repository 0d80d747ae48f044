"""Pooling of adjacent violators: the greatest convex minorant of a few blocks.

A block has a mass and a width.  A block that is steeper than the next one, or as steep, is joined
with it, until slopes increase.  Where there are many blocks, scipy's regression is faster; where
there are few, loading it takes longer than this.
"""

import math
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array

_MAX_POOLED_BLOCKS = 5_000  # of more, scipy's regression
_MAX_REPEATED_BLOCKS = 500  # of regressions that a run needs by the dozen


class Pool(NamedTuple):
    """Neighbouring blocks that share one slope, and how many they are."""

    mass: float
    width: float
    blocks: int = 1


def pooled(blocks: Iterable[tuple[float, float]]) -> list[Pool]:
    """Masses and widths of the pools, in order."""
    return _pool_blocks(
        blocks,
        falls=lambda one, other: one.mass * other.width >= other.mass * one.width,
        add=lambda x, y: x + y,
    )


def pooled_logs(blocks: Iterable[tuple[float, float]]) -> list[Pool]:
    """Pools, in order, of blocks whose masses and widths are logarithms, as the pools' then are."""
    return _pool_blocks(
        blocks,
        falls=lambda one, other: one.mass - one.width >= other.mass - other.width,
        add=_log_sum,
    )


def isotonic(values: Array, weights: Array) -> Array:
    """The non-decreasing regression of `values`."""
    if values.size > _MAX_POOLED_BLOCKS:
        return np.asarray(scipy.optimize.isotonic_regression(values, weights=weights).x)
    pools = pooled(zip((values * weights).tolist(), weights.tolist(), strict=True))
    return np.repeat([p.mass / p.width for p in pools], [p.blocks for p in pools])


def first_of_pools(masses: Array, widths: Array) -> NDArray[np.intp]:
    """The index of the first block of each pool."""
    if masses.size > _MAX_REPEATED_BLOCKS:
        found = scipy.optimize.isotonic_regression(masses / widths, weights=widths)
        return np.asarray(found.blocks[:-1], dtype=np.intp)
    pools = _pool_blocks(
        zip(masses.tolist(), widths.tolist(), strict=True),
        # Quotients, since products of tiny numbers vanish.
        falls=lambda one, other: one.mass / one.width >= other.mass / other.width,
        add=lambda x, y: x + y,
    )
    return np.array([0, *accumulate(pool.blocks for pool in pools[:-1])], dtype=np.intp)


def _pool_blocks(
    blocks: Iterable[tuple[float, float]],
    *,
    falls: Callable[[Pool, Pool], bool],
    add: Callable[[float, float], float],
) -> list[Pool]:
    """The pools of blocks that fall, added by `add`."""
    pools: list[Pool] = []
    for mass, width in blocks:
        latest = Pool(mass, width)
        while pools and falls(pools[-1], latest):
            before = pools.pop()
            latest = Pool(
                add(latest.mass, before.mass),
                add(latest.width, before.width),
                latest.blocks + before.blocks,
            )
        pools.append(latest)
    return pools


def _log_sum(one: float, other: float) -> float:
    larger, smaller = max(one, other), min(one, other)
    return larger + math.log1p(math.exp(smaller - larger))
