"""Sums over the columns of rows, rounded by each row's own values and by nothing else.

BLAS and numpy's reductions may add the same row in another order if it lies elsewhere in memory, in
another layout or among more rows.  Here every sum is made of additions of whole arrays, entry by
entry, whose rounding IEEE 754 fixes: the number of columns alone decides the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.rows import Rows

_PIECE = 2**16  # entries added up at a time, which a processor's cache holds


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def squared_norms(rows: Rows) -> Array:
    """The sum of squares of each row, in float64; inf or nan where it has none there."""
    if not isinstance(rows, np.ndarray):
        entries = rows.data.astype(np.float64)
        return _by_owner(rows, entries * entries)
    total = np.empty(rows.shape[0])
    for part, columns in _pieces(rows):
        total[part] = _summed(np.multiply(columns, columns, out=columns))
    return total


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def squares_and_products(rows: Rows, vector: Array) -> tuple[Array, Array]:
    """The sum of squares of each row, and its inner product with the vector, in float64."""
    if not isinstance(rows, np.ndarray):
        return squared_norms(rows), _by_owner(rows, rows.data * vector[rows.indices])
    squares, products = np.empty(rows.shape[0]), np.empty(rows.shape[0])
    for part, columns in _pieces(rows):
        products[part] = _summed(columns * vector[:, np.newaxis])
        squares[part] = _summed(np.multiply(columns, columns, out=columns))
    return squares, products


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def inner_products(rows: NDArray[Any], vector: Array) -> Array:
    """The inner product of each dense row with the vector, in float64."""
    products = np.empty(rows.shape[0])
    for part, columns in _pieces(rows):
        columns *= vector[:, np.newaxis]
        products[part] = _summed(columns)
    return products


def owners(rows: Rows) -> NDArray[np.intp]:
    """The row number of each entry of a sparse matrix."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _by_owner(rows: Rows, terms: Array) -> Array:
    """Terms of each row of a sparse matrix, added one after the other."""
    return np.asarray(np.bincount(owners(rows), terms, rows.shape[0]), dtype=np.float64)


def _pieces(rows: NDArray[Any]) -> Iterator[tuple[slice, Array]]:
    """Some rows at a time, as columns of float64 in memory that may be overwritten."""
    count, width = rows.shape
    stride = max(1, _PIECE // max(width, 1))
    memory = np.empty((width, min(stride, count)))
    for start in range(0, count, stride):
        part = slice(start, min(start + stride, count))
        columns = memory[:, : part.stop - part.start]
        columns[...] = rows[part].T
        yield part, columns


def _summed(terms: Array) -> Array:
    """The sum of each column; the terms are overwritten.  The second half is added to the first."""
    count = len(terms)
    if count == 0:
        return np.zeros(terms.shape[1])
    while count > 1:
        half = count // 2
        terms[:half] += terms[count - half : count]
        count -= half
    return np.asarray(terms[0])
