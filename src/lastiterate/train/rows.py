"""Rows of features, dense or sparse, in memory or in a file, read so that they are one's own."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.train.noise import Order

Rows = Any  # a dense array or a compressed sparse row matrix
Selection = slice | Order


def is_mapped(rows: Rows) -> bool:
    """Whether `rows` is a whole file, mapped row by row."""
    return (
        isinstance(rows, np.memmap)
        and isinstance(rows.base, mmap.mmap)
        and rows.flags.c_contiguous
        and rows.ndim == 2
    )


def read(rows: Rows, chosen: Selection) -> Rows:
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
    return own if own.has_canonical_format else _with_sums(own)


def _with_sums(rows: Rows) -> Rows:
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
