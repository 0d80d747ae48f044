r"""The factor that brings each row within a bound, from the row as it is when it is used.

A sum of n squares in floating point, added in whatever order, is within a relative
:math:`(n + 1)u` of the exact one, u the unit of rounding.  Rows are cut into pieces of so few
columns that this is small even for float32, and factors are rounded down by as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import down, ulps, ulps_of, up
from lastiterate.errors import InvalidParameter
from lastiterate.train.rows import Rows, read, without_duplicates

FAR = 10.0
_CHUNK = 2**20  # entries looked at together
_COLUMNS = 1_024  # squares added up in the precision of the rows
SHORTEST = 1e-12  # a factor: products with longer rows might overflow
_LEAST_BOUND = 1e-10  # squares far below its own may vanish without harm


def norm_factors(rows: Rows, bound: float) -> Array:
    """min(1, bound/norm) of every row, rounded down; refuses rows that are not finite."""
    factors = np.ones(rows.shape[0])
    for part, some in chunks(rows):
        factors[part] = _factors(some, bound)
    return factors


def far_rows(rows: Rows, bound: float) -> tuple[int, int]:
    """How many rows are more than ten times as long as the bound, and shorter than a tenth."""
    factors = norm_factors(rows, bound / FAR)
    return int((factors < FAR**-2).sum()), int((factors == 1.0).sum())


def chunks(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """All rows, so many at a time as fit into memory twice over; each is read once."""
    count, width = rows.shape
    stride = max(1, _CHUNK // max(width, 1))
    for start in range(0, count, stride):
        part = slice(start, min(start + stride, count))
        yield part, read(rows, part)


def with_huge_rows_scaled(rows: Rows, factors: Array, *, bound: float) -> tuple[Rows, Array]:
    """The same, rows beyond what products can hold being scaled down themselves."""
    if not factors.size or factors.min() >= SHORTEST:
        return rows, factors
    long = np.flatnonzero(factors < SHORTEST)
    rows, factors = rows.copy(), factors.copy()
    scaled = rows[long].astype(np.float64)
    if isinstance(rows, np.ndarray):
        rows[long] = scaled * factors[long, np.newaxis]
    else:
        rows = rows.tolil()
        rows[long] = scaled.multiply(factors[long, np.newaxis])
        rows = rows.tocsr()
    factors[long] = norm_factors(rows[long], bound)
    return rows, factors


def _factors(rows: Rows, bound: float) -> Array:
    """Of a part of the rows."""
    if isinstance(rows, np.ndarray) and bound >= _LEAST_BOUND:
        squares = _squares(rows)
        if np.isfinite(squares).all():
            # Half of the sum's units, by the root; a unit is two roundings.
            roundings = min(rows.shape[1], _COLUMNS) / 2 + 8
            norms = up(np.sqrt(squares), ulps_of(rows.dtype, roundings))
            return np.where(norms > bound, down(bound / np.maximum(norms, bound), ulps(8)), 1.0)
    units, norms = _norms(rows)
    if not np.isfinite(norms).all():
        raise InvalidParameter("X", must_be="finite throughout", found="a row that is not")
    # A norm is a sum of as many squares as there are columns, each rounded.
    margin = ulps(rows.shape[1] + 8)
    factors = np.ones(rows.shape[0])
    with np.errstate(over="ignore"):
        long = up(units * norms, margin) > bound
    found = down(bound / units[long] / norms[long], margin)
    # Where the factor itself cannot be computed well, the row counts as 0.
    factors[long] = np.where(found >= np.finfo(float).tiny, found, 0.0)
    return factors


def _squares(rows: NDArray[Any]) -> Array:
    """Of the norms; inf or nan where an entry is too large or is none."""
    total = np.zeros(rows.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, rows.shape[1], _COLUMNS):
            part = rows[:, start : start + _COLUMNS]
            total += _row_products(part, part)
    return total


def _row_products(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    if hasattr(np, "vecdot"):  # from numpy 2 on, and twice as fast
        return np.asarray(np.vecdot(one, other))
    return np.asarray(np.einsum("ij,ij->i", one, other))


def _norms(rows: Rows) -> tuple[Array, Array]:
    """For each row a unit and its norm in it, so that squares neither overflow nor vanish."""
    if isinstance(rows, np.ndarray):
        largest = np.abs(rows).max(axis=1, initial=0.0).astype(np.float64)
        units = np.where((largest > 1e18) | (largest < 1e-18), largest, 1.0)
        units[~(np.isfinite(units) & (units > 0.0))] = 1.0
        scaled = rows if (units == 1.0).all() else rows / units[:, np.newaxis]
        return units, np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled, dtype=np.float64)))
    rows = without_duplicates(rows)
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    entries = np.abs(rows.data.astype(np.float64))
    largest = np.zeros(rows.shape[0])
    np.maximum.at(largest, owner, entries)  # nan and inf stay what they are
    units = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)
    squares = np.bincount(owner, weights=(entries / units[owner]) ** 2, minlength=units.size)
    return units, np.asarray(np.sqrt(squares))
