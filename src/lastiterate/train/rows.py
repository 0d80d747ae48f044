"""Rows of features, dense or sparse, in memory or in a file, read so that they are one's own.

**Factors** bring each row within a bound, from the row as it is when it is used.  A row's factor
depends on the numbers of that row and on the bound alone: were it to depend on other rows, one
example could move what all the others add to a gradient.  So every choice below is made row by row,
and sums are those of `squared_norms`.

A sum of n squares in floating point, added in whatever order, is within a relative
:math:`(n + 1)u` of the exact one, u the unit of rounding of float64; factors are rounded down by
as much.  They are also rounded down by `rounding`, the relative rounding of what is computed with
them.  That follows from public settings and not from the rows' own precision: one row of float64
makes an array of float32 rows one of float64.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import TINY, Array, down, ulps, ulps_of, up
from lastiterate.errors import InvalidParameter
from lastiterate.train.noise import Order

Rows = Any  # a dense array or a compressed sparse row matrix
RowIndex = slice | Order
FAR = 10.0  # times as long as the bound, or as short
_ENTRIES_AT_ONCE = 2**20
PROVED_ROUNDING = ulps(1)  # of rows that are scaled in float64

# Huge rows are rounded to float32, and residuals times factors before they are multiplied by rows.
FAST_ROUNDING = ulps_of(np.float32, 2)

SHORTEST = 1e-12  # a factor: products with longer rows might overflow

# Sums of squares, between which none has overflowed and what has vanished is no matter.
_LEAST_SUM, _LARGEST_SUM = 1e-280, 1e300

_ENTRIES_IN_CACHE = 2**16  # added up at a time


def is_mapped(rows: Rows) -> bool:
    """Whether `rows` is a whole file, mapped row by row."""
    return (
        isinstance(rows, np.memmap)
        and isinstance(rows.base, mmap.mmap)
        and rows.flags.c_contiguous
        and rows.ndim == 2
    )


def read(rows: Rows, chosen: RowIndex) -> Rows:
    """Some of the rows; those of a file are read anew, into memory that nobody else has."""
    if not is_mapped(rows):
        return rows[chosen]
    if not isinstance(chosen, slice):
        must_be = "contiguous in a mapped file"
        raise InvalidParameter("batches", must_be=must_be, found="scattered rows")
    start, stop, _ = chosen.indices(rows.shape[0])
    count, width = max(stop - start, 0), rows.shape[1]
    part = np.fromfile(
        rows.filename,
        dtype=rows.dtype,
        count=count * width,
        offset=rows.offset + start * width * rows.itemsize,
    )
    if part.size != count * width:
        must_be = "a file that keeps its length while it is read"
        raise InvalidParameter("X", must_be=must_be, found="a shorter one")
    return part.reshape(count, width)


def own_copy(rows: Rows, order: Order | None) -> Rows:
    """The rows of `order`, or all as they are, in memory that nobody else has."""
    if order is not None:
        copied = rows[order]
    elif isinstance(rows, np.ndarray):
        copied = np.array(rows, order="C", subok=False)
    else:
        copied = rows.copy()
    return without_duplicates(copied)


def without_duplicates(rows: Rows) -> Rows:
    """Rows of the same values, in which no place of a sparse matrix is named twice.

    Entries of one place may cancel, so that the row is short; multiplied one by one they would
    drown all that other rows add to the same sum.
    """
    if isinstance(rows, np.ndarray):
        return rows
    # Made anew, since what the matrix says of itself need not be true.
    try:
        own = type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)
        own.check_format(full_check=True)
    except ValueError:
        # scipy would read and write elsewhere in memory.
        must_be = "a sparse matrix whose entries all lie in it"
        raise InvalidParameter("X", must_be=must_be, found="entries outside it") from None
    return own if own.has_canonical_format else _add_duplicates(own)


def _add_duplicates(rows: Rows) -> Rows:
    """Entries of one place added up in the order in which the row has them, in float64.

    Rounded to float32, sums would change with a row that makes the matrix one of float64.  scipy
    sorts all rows if one is not sorted, and may so change the order of others' entries.
    """
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, owner))  # stable
    owner, places = owner[order], rows.indices[order]
    first = np.append(True, (np.diff(owner) != 0) | (np.diff(places) != 0))
    with np.errstate(over="ignore"):
        sums = np.bincount(np.cumsum(first) - 1, rows.data[order])
    ends = np.cumsum(np.bincount(owner[first], minlength=rows.shape[0]))
    return type(rows)((sums, places[first], np.append(0, ends)), shape=rows.shape)


def compressed(rows: Rows) -> Rows:
    """A sparse matrix of any format by rows; entries of one place stay apart, in their order.

    scipy would add them up, in an order that depends on other rows.
    """
    from scipy import sparse  # which helps of commands need not wait for

    if rows.format in ("csr", "csc") or rows.ndim != 2:
        return rows.tocsr()
    entries = rows.tocoo()
    order = np.argsort(entries.row, kind="stable")
    ends = np.cumsum(np.bincount(entries.row, minlength=rows.shape[0]))
    kind = sparse.csr_array if isinstance(rows, sparse.sparray) else sparse.csr_matrix
    parts = entries.data[order], entries.col[order], np.append(0, ends)
    return kind(parts, shape=rows.shape)


# Factors.


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def norm_factors(rows: Rows, bound: float, *, rounding: float = PROVED_ROUNDING) -> Array:
    """min(1, bound/norm) of every row, rounded down; refuses rows that are not finite."""
    factors = np.ones(rows.shape[0])
    for part, some in chunks(rows):
        some = without_duplicates(some)
        factors[part] = factors_of(some, squared_norms(some), bound, rounding)
    return factors


def far_rows(rows: Rows, bound: float) -> tuple[int, int]:
    """The numbers of rows longer than ten times the bound, and shorter than a tenth of it."""
    factors = norm_factors(rows, bound / FAR)
    return int((factors < FAR**-2).sum()), int((factors == 1.0).sum())


def chunks(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """All rows, as many at a time as fit into memory twice; each row is read once."""
    count, width = rows.shape
    stride = max(1, _ENTRIES_AT_ONCE // max(width, 1))
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
        squares[odd] = squared_norms(_divide_rows(some, exponents[odd]))
    return np.sqrt(squares), exponents


def _exponents(rows: Rows) -> NDArray[np.intc]:
    """The exponent of the least power of two above all entries of each row; 0 if all are 0."""
    if isinstance(rows, np.ndarray):
        largest = np.abs(rows).max(axis=1, initial=0.0)
    else:
        largest = np.zeros(rows.shape[0], dtype=rows.dtype)
        np.maximum.at(largest, owners(rows), np.abs(rows.data))
    return np.frexp(np.where(np.isfinite(largest), largest, 0.0))[1]


def _divide_rows(rows: Rows, exponents: NDArray[np.intc]) -> Rows:
    """Rows in units of these powers of two, which only entries far below them may round."""
    with np.errstate(under="ignore"):
        if isinstance(rows, np.ndarray):
            return np.ldexp(rows.astype(np.float64), -exponents[:, np.newaxis])
        divided = rows.astype(np.float64)
        divided.data = np.ldexp(divided.data, -exponents[owners(rows)])
        return divided


# Sums over the columns of rows, rounded by each row's own values and by nothing else.
#
# BLAS and numpy's reductions may add the same row in another order if it lies elsewhere in memory,
# in another layout or among more rows.  Here every sum is made of additions of whole arrays, entry
# by entry, whose rounding IEEE 754 fixes: the number of columns alone decides the order.


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def squared_norms(rows: Rows) -> Array:
    """The sum of squares of each row, in float64; inf or nan where it has none there."""
    if not isinstance(rows, np.ndarray):
        entries = rows.data.astype(np.float64)
        return _sums_by_owner(rows, entries * entries)
    total = np.empty(rows.shape[0])
    for part, columns in _column_pieces(rows):
        total[part] = _column_sums(np.multiply(columns, columns, out=columns))
    return total


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def squares_and_products(rows: Rows, vector: Array) -> tuple[Array, Array]:
    """The sum of squares of each row, and its inner product with the vector, in float64."""
    if not isinstance(rows, np.ndarray):
        return squared_norms(rows), _sums_by_owner(rows, rows.data * vector[rows.indices])
    squares, products = np.empty(rows.shape[0]), np.empty(rows.shape[0])
    for part, columns in _column_pieces(rows):
        products[part] = _column_sums(columns * vector[:, np.newaxis])
        squares[part] = _column_sums(np.multiply(columns, columns, out=columns))
    return squares, products


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def inner_products(rows: NDArray[Any], vector: Array) -> Array:
    """The inner product of each dense row with the vector, in float64."""
    products = np.empty(rows.shape[0])
    for part, columns in _column_pieces(rows):
        columns *= vector[:, np.newaxis]
        products[part] = _column_sums(columns)
    return products


def owners(rows: Rows) -> NDArray[np.intp]:
    """The row number of each entry of a sparse matrix."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _sums_by_owner(rows: Rows, terms: Array) -> Array:
    """Terms of each row of a sparse matrix, added one after the other."""
    return np.asarray(np.bincount(owners(rows), terms, rows.shape[0]), dtype=np.float64)


def _column_pieces(rows: NDArray[Any]) -> Iterator[tuple[slice, Array]]:
    """Some rows at a time, as columns of float64 in memory that may be overwritten."""
    count, width = rows.shape
    stride = max(1, _ENTRIES_IN_CACHE // max(width, 1))
    memory = np.empty((width, min(stride, count)))
    for start in range(0, count, stride):
        part = slice(start, min(start + stride, count))
        columns = memory[:, : part.stop - part.start]
        columns[...] = rows[part].T
        yield part, columns


def _column_sums(terms: Array) -> Array:
    """The sum of each column; the terms are overwritten.  The second half is added to the first."""
    count = len(terms)
    if count == 0:
        return np.zeros(terms.shape[1])
    while count > 1:
        half = count // 2
        terms[:half] += terms[count - half : count]
        count -= half
    return np.asarray(terms[0])


# Rows mapped to [-1, 1] by public ranges and brought within a public bound.


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def rows_within(rows: Rows, bound: float, ranges: tuple[Array, Array] | None) -> Any:
    """The rows, mapped from their ranges if there are some, none longer than the bound.

    The result is float64: in the precision of the rows, one row of another type would change all.
    """
    rows = rows.astype(np.float64)
    if ranges is not None:
        low, high = ranges
        rows = np.clip((rows - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    factors = norm_factors(rows, bound)
    if not isinstance(rows, np.ndarray):
        return rows.multiply(factors[:, np.newaxis]).tocsr()
    rows *= factors[:, np.newaxis]
    return rows
