r"""The factor that brings each row within a bound, from the row as it is when it is used.

A row's factor depends on the numbers of that row and on the bound alone: were it to depend on other
rows, one example could move what all the others add to a gradient.  So every choice below is made
row by row, and sums are those of `row_sums`.

A sum of n squares in floating point, added in whatever order, is within a relative
:math:`(n + 1)u` of the exact one, u the unit of rounding of float64; factors are rounded down by as
much.  They are also rounded down by `rounding`, the relative rounding of what is computed with
them.  That follows from public settings and not from the rows' own precision: one row of float64
makes an array of float32 rows one of float64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import TINY, Array, down, ulps, ulps_of, up
from lastiterate.errors import InvalidParameter
from lastiterate.train.row_sums import owners, squared_norms
from lastiterate.train.rows import Rows, read, without_duplicates

FAR = 10.0
_CHUNK = 2**20  # entries looked at together
PROVED_ROUNDING = ulps(1)  # of rows that are scaled in float64
# Huge rows are rounded to float32, and residuals times factors before they are multiplied by rows.
FAST_ROUNDING = ulps_of(np.float32, 2)
SHORTEST = 1e-12  # a factor: products with longer rows might overflow
# Sums of squares, between which none has overflowed and what has vanished is no matter.
_LEAST_SUM, _LARGEST_SUM = 1e-280, 1e300


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def norm_factors(rows: Rows, bound: float, *, rounding: float = PROVED_ROUNDING) -> Array:
    """min(1, bound/norm) of every row, rounded down; refuses rows that are not finite."""
    factors = np.ones(rows.shape[0])
    for part, some in chunks(rows):
        some = without_duplicates(some)
        factors[part] = factors_of(some, squared_norms(some), bound, rounding)
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


def with_huge_rows_scaled(
    rows: Rows, factors: Array, *, bound: float, rounding: float = PROVED_ROUNDING
) -> tuple[Rows, Array]:
    """Rows and factors, after rows too long for products are scaled down themselves."""
    huge = np.flatnonzero(factors < SHORTEST)
    if not huge.size:
        return rows, factors
    rows, factors = rows.copy(), factors.copy()
    if isinstance(rows, np.ndarray):
        rows[huge] = rows[huge].astype(np.float64) * factors[huge, np.newaxis]
    else:
        each = np.where(factors < SHORTEST, factors, 1.0)[owners(rows)]
        rows.data = (rows.data.astype(np.float64) * each).astype(rows.dtype)
    factors[huge] = norm_factors(rows[huge], bound, rounding=rounding)
    return rows, factors


def factors_of(rows: Rows, squares: Array, bound: float, rounding: float) -> Array:
    """The factors of some rows without duplicates, whose `squared_norms` are known."""
    norms, exponents = _norms(rows, squares.copy())
    if not np.isfinite(norms).all():
        raise InvalidParameter("X", must_be="finite throughout", found="a row that is not")
    # Half of the sum's units, by the root; a unit is two roundings.
    norms = up(norms, ulps(rows.shape[1] / 2 + 8) + rounding)
    factors = np.ones(norms.size)
    with np.errstate(over="ignore", under="ignore"):
        long = np.flatnonzero(norms > np.ldexp(bound, -exponents))
        found = np.ldexp(down(bound / norms[long], ulps(8)), -exponents[long])
    # Where the factor itself cannot be computed well, the row counts as 0.
    factors[long] = np.where(found >= TINY, found, 0.0)
    return factors


def _norms(rows: Rows, squares: Array) -> tuple[Array, NDArray[np.intc]]:
    """Norms, each in units of a power of two of its own; inf or nan if an entry is."""
    exponents = np.zeros(rows.shape[0], dtype=np.intc)
    odd = np.flatnonzero(~((squares >= _LEAST_SUM) & (squares <= _LARGEST_SUM)))
    if odd.size:
        some = rows[odd]
        exponents[odd] = _exponents(some)
        squares[odd] = squared_norms(_divided(some, exponents[odd]))
    return np.sqrt(squares), exponents


def _exponents(rows: Rows) -> NDArray[np.intc]:
    """The exponent of the least power of two above all entries of each row; 0 if all are 0."""
    if isinstance(rows, np.ndarray):
        largest = np.abs(rows).max(axis=1, initial=0.0)
    else:
        largest = np.zeros(rows.shape[0], dtype=rows.dtype)
        np.maximum.at(largest, owners(rows), np.abs(rows.data))
    return np.frexp(np.where(np.isfinite(largest), largest, 0.0))[1]


def _divided(rows: Rows, exponents: NDArray[np.intc]) -> Rows:
    """Rows in units of these powers of two, which only entries far below them may round."""
    with np.errstate(under="ignore"):
        if isinstance(rows, np.ndarray):
            return np.ldexp(rows.astype(np.float64), -exponents[:, np.newaxis])
        divided = rows.astype(np.float64)
        divided.data = np.ldexp(divided.data, -exponents[owners(rows)])
        return divided
