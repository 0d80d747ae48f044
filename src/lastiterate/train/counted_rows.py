r"""Rows as they count: float64 numbers, each row computed from itself and public numbers alone.

A row x counts as :math:`\alpha x`, or :math:`\alpha x - \beta m` around a centre m, rounded entry
by entry.  What is so computed *is* the row that the guarantee speaks of: its norm is within the
bound, as factors are rounded down by more than this rounds, and no other row has any part in it.
Sparse rows stay sparse: of them :math:`\alpha x` is computed, and the centre's part is subtracted
from their outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled import compiled
from lastiterate.train.data import Batch, Examples
from lastiterate.train.row_sums import owners
from lastiterate.train.rows import Rows, Selection

_BLOCK = 1 << 18  # entries converted at a time
_PER_OUTPUT, _MOST_ROWS = 2, 2_048  # so that sums of many outputs are added up seldom


def stored_batch(own: Examples, chosen: Selection) -> Batch:
    """The chosen examples with rows as they are stored, and what they count as.

    `scaled` is whether dense rows have yet to be converted.  Of sparse rows that has been done, but
    for the centre.
    """
    if own.is_mapped:
        own, chosen = own.read(chosen), slice(None)
    rows, targets = own.rows[chosen], own.targets[chosen]
    silent = None if own.silent is None else own.silent[chosen]
    weights = None if own.weights is None else own.weights[chosen]
    shifts, mean = None, None
    dense = isinstance(rows, np.ndarray)
    if own.centre is not None and not (own.counted and dense):
        shifts, mean = own.shifts[chosen], own.centre.mean
    if own.counted:
        return Batch(rows, targets, np.ones(targets.size), silent, False, shifts, mean, weights)
    factors = own.row_factors[chosen]
    if not dense:
        rows, factors = _scaled_sparse(rows, factors), np.ones(targets.size)
    scaled = dense and not (shifts is None and _plain(rows, factors))
    return Batch(rows, targets, factors, silent, scaled, shifts, mean, weights)


def counted_batches(own: Examples, chosen: Selection) -> Iterator[Batch]:
    """The chosen examples as they count, at least one batch, of as many as are quick to convert."""
    yield from converted(stored_batch(own, chosen))


def dense_rows(own: Examples) -> Array:
    """All rows as they count, together: how many a batch has depends on whether any is long."""
    assert own.centre is None or isinstance(own.rows, np.ndarray)  # not subtracted from sparse rows
    found, done = np.empty(own.rows.shape), 0
    for batch in counted_batches(own, slice(None)):
        rows = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        found[done : done + len(rows)] = rows
        done += len(rows)
    return found


def converted(stored: Batch, outputs: int = 1) -> Iterator[Batch]:
    """A stored batch as it counts, in parts; of large ones if there are many outputs to add up."""
    if not stored.scaled:
        yield stored
        return
    rows, targets, factors, silent, _, shifts, mean, weights = stored
    stride = max(1, _BLOCK // max(rows.shape[1], 1), min(outputs * _PER_OUTPUT, _MOST_ROWS))
    room = np.empty((min(stride, targets.size), rows.shape[1]))
    for start in range(0, max(targets.size, 1), stride):
        part = slice(start, start + stride)
        some = rows[part]
        found = room[: len(some)]
        _convert(some, factors[part], None if shifts is None else shifts[part], mean, found)
        hidden = None if silent is None else silent[part]
        own = None if weights is None else weights[part]
        yield Batch(found, targets[part], np.ones(len(some)), hidden, False, weights=own)


def counted_once(own: Examples) -> Examples:
    """Examples in one's own memory, whose rows of float64 are overwritten by those that count."""
    if own.counted or own.is_mapped or own.rows.dtype != np.float64:
        return own
    if isinstance(own.rows, np.ndarray):
        stride = max(1, _BLOCK // max(own.features, 1))
        mean = None if own.centre is None else own.centre.mean
        for start in range(0, len(own), stride):
            part = slice(start, start + stride)
            shifts = None if own.centre is None else own.shifts[part]
            _convert(own.rows[part], own.row_factors[part], shifts, mean, own.rows[part])
        return replace(own, counted=True)
    scaled = replace(own, rows=_scaled_sparse(own.rows, own.row_factors), counted=True)
    if own.centre is not None:
        scaled.__dict__["shifts"] = own.shifts
    return scaled


def _plain(rows: Rows, factors: Array) -> bool:
    """Whether rows count as they are."""
    return rows.dtype == np.float64 and bool((factors == 1.0).all())


def _convert(
    rows: NDArray[Any], factors: Array, shifts: Array | None, mean: Array | None, out: Array
) -> None:
    if (fast := compiled("outputs", rows.size)) is not None:
        if shifts is None or mean is None:
            fast.scaled_rows(rows, factors, out)
        else:
            fast.centred_rows(rows, factors, shifts, mean, out)
        return
    np.multiply(rows, factors[:, np.newaxis], out=out)
    if shifts is not None and mean is not None:
        out -= np.outer(shifts, mean)


def _scaled_sparse(rows: Rows, factors: Array) -> Rows:
    data = rows.data * factors[owners(rows)]
    return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
