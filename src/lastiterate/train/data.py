"""The data of a training: rows that are never changed, and the factor that bounds each.

A row longer than the bound counts as if scaled down to it.  The factor is applied to a row's
outputs and to its residual instead of to the row, so that neither a second copy nor a look at
any other row is needed.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import down, ulps, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.train.noise import Order

Rows = Any  # a dense array or a compressed sparse row matrix
Selection = slice | Order

_CHUNK = 2**20  # entries looked at together
_SHORTEST = 1e-12  # a factor: products with longer rows might overflow


@dataclass(frozen=True, eq=False)
class Examples:
    """Features, targets, and for each row the factor that brings its norm within the bound.

    `intercept` is the constant that every row is followed by, 0 for none.
    """

    rows: Rows
    targets: NDArray[Any]
    factors: Array
    feature_bound: float
    intercept: float

    def __len__(self) -> int:
        return int(self.targets.size)

    @property
    def features(self) -> int:
        return int(self.rows.shape[1])

    @property
    def parameters(self) -> int:
        """How many parameters one output has."""
        return self.features + (self.intercept > 0.0)

    @property
    def radius(self) -> float:
        """A bound on the norms of rows, the constant of the intercept included."""
        return math.hypot(self.feature_bound, self.intercept)

    @property
    def is_mapped(self) -> bool:
        """Whether the rows lie in a file, to be read one batch at a time."""
        return is_mapped(self.rows)

    def reordered(self, order: Order) -> Examples:
        """A copy of the rows of `order`, in that order."""
        return replace(
            self, rows=self.rows[order], targets=self.targets[order], factors=self.factors[order]
        )

    def batch(self, chosen: Selection) -> tuple[Rows, NDArray[Any], Array]:
        """Rows, targets and factors."""
        rows, factors = with_huge_rows_scaled(
            _read(self.rows, chosen), self.factors[chosen], bound=self.feature_bound
        )
        return rows, self.targets[chosen], factors


def bounded(rows: Rows, targets: NDArray[Any], *, bound: float, intercept: float) -> Examples:
    """The examples, each row's norm brought within `bound`."""
    # So that nothing in training overflows float32, whatever the rows are.
    bound = _check.number("feature_bound", bound, at_least=1e-12, at_most=1e12)
    intercept = _check.number("intercept", intercept, at_least=0.0, at_most=1e12)
    if rows.dtype not in (np.float32, np.float64):
        raise InvalidType("X", must_be="of float32 or float64", found=str(rows.dtype))
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise InvalidParameter("y", must_be="finite throughout", found="a target that is not")
    rows = without_duplicates(rows)
    return Examples(rows, targets, norm_factors(rows, bound), bound, intercept)


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
    if not own.has_canonical_format:
        own = own.copy()
        own.sum_duplicates()
    return own


def norm_factors(rows: Rows, bound: float) -> Array:
    """min(1, bound/norm) of every row, rounded down; refuses rows that are not finite."""
    count, width = rows.shape
    # A norm is a sum of `width` squares, each rounded.
    margin = ulps(width + 8)
    factors = np.ones(count)
    stride = max(1, _CHUNK // max(width, 1))
    for start in range(0, count, stride):
        part = slice(start, min(start + stride, count))
        units, norms = _norms(_read(rows, part))
        if not np.isfinite(norms).all():
            raise InvalidParameter("X", must_be="finite throughout", found="a row that is not")
        with np.errstate(over="ignore"):
            long = up(units * norms, margin) > bound
        found = down(bound / units[long] / norms[long], margin)
        # Where the factor itself cannot be computed well, the row counts as 0.
        factors[part][long] = np.where(found >= np.finfo(float).tiny, found, 0.0)
    return factors


def with_huge_rows_scaled(rows: Rows, factors: Array, *, bound: float) -> tuple[Rows, Array]:
    """The same, rows beyond what products can hold being scaled down themselves."""
    if not factors.size or factors.min() >= _SHORTEST:
        return rows, factors
    long = np.flatnonzero(factors < _SHORTEST)
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


def is_mapped(rows: Rows) -> bool:
    """Whether `rows` is a whole file, mapped row by row."""
    return (
        isinstance(rows, np.memmap)
        and isinstance(rows.base, mmap.mmap)
        and rows.flags.c_contiguous
        and rows.ndim == 2
    )


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


def _read(rows: Rows, chosen: Selection) -> Rows:
    if not is_mapped(rows):
        return rows[chosen]
    if not isinstance(chosen, slice):
        must_be = "contiguous in a mapped file"
        raise InvalidParameter("batches", must_be=must_be, found="scattered rows")
    # A map of its own, so that what was read is given back when the batch is done with.
    start, stop, _ = chosen.indices(rows.shape[0])
    offset = rows.offset + start * rows.shape[1] * rows.itemsize
    shape = (stop - start, rows.shape[1])
    part = np.memmap(rows.filename, dtype=rows.dtype, mode="r", offset=offset, shape=shape)
    return part.view(np.ndarray)
