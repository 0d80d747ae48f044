"""A probe of this machine's matrix products: that they are sums of products of float64 numbers.

Bounds on rounding hold for sums in any order, fused or not.  They do not for Strassen's method, for
products that are emulated by shorter numbers, for other rounding modes, or where subnormal
numbers are flushed to 0.  Once a process and shape, products of these kinds are compared with what
they must be:

- whole numbers whose sums stay below 2^53 have no rounding at all;
- a row that is 2^60 times as large must not change any other row, as it does in Strassen's method;
- products of subnormal numbers are not 0.

Products of sparse rows are probed likewise, by one shape: scipy adds entry after entry to each
number of the result, whatever the shape.  So are the thin products that are compiled here, in one
shape that no tile fits.  How a thread rounds is looked at once in every thread.

Were a thread to flush subnormal numbers to 0 all the same, by a library that is loaded later, that
would move any number by less than 1e-300 or, as a row of float32, by 1e-38: bounds on errors have
room for far more.

What passes is not thereby proved to be sound; what fails is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from operator import matmul
from types import ModuleType
from typing import Any

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.errors import NumericalFailure

_SAMPLED_ENTRIES = 64  # entries that are compared with exact ones
_MANTISSA_BITS = 53
_SPARSE_SHAPE = 96, 64  # of sparse rows that are probed
_THIN_SHAPE = 9, 407  # of rows for thin products
_UNROLLED = 4  # rows of the left factor that BLAS takes at a time
_THREAD = threading.local()


def check_thread() -> None:
    """Refuse to go on in a thread that does not round to nearest, or has no subnormal numbers."""
    if not getattr(_THREAD, "sound", False):
        if not (_rounds_to_nearest() and _halves_subnormals()):
            raise _unsound("numerical")
        _THREAD.sound = True


@lru_cache(maxsize=256)
def check_products(rows: int, width: int, outputs: int) -> None:
    """Refuse to go on where products of these shapes are not what bounds on rounding are for."""

    def forward(left: Array, right: Array) -> Array:
        return np.asarray(left @ np.asfortranarray(right))

    if not (
        _is_sound(rows, width, outputs, forward)
        and _is_sound(unrolled(outputs), rows, width)
        and _keeps_subnormals(rows, width, outputs)
    ):
        raise _unsound("BLAS")


@lru_cache(maxsize=64)
def check_thin_products(
    thin: ModuleType, precision: np.dtype[Any], outputs: int, *, more: bool
) -> None:
    """Refuse to go on where compiled products with rows of this precision are not plain sums.

    With `more`, weights have a further column, as where there is an intercept.
    """
    (count, width), one = _THIN_SHAPE, np.ones(_THIN_SHAPE[0])

    def forward(left: Array, right: Array) -> Array:
        weights = np.zeros((outputs, width + more))[:, :width]
        weights[...] = right.T
        rows, constants = left.astype(precision), np.zeros(outputs)
        return np.asarray(thin.thin_outputs(rows, one, None, None, weights, constants).T)

    def backward(left: Array, right: Array) -> Array:
        sums = np.empty((outputs, width + more))
        thin.sums(right.astype(precision), one, None, None, left, sums)
        return sums[:, :width]

    if not (
        _is_sound(count, width, outputs, forward) and _is_sound(outputs, count, width, backward)
    ):
        raise _unsound("Numba")


@lru_cache(maxsize=64)
def check_sparse_products(kind: type[Any], outputs: int) -> None:
    """Refuse to go on where products of sparse rows of this type are not plain sums."""
    rows, width = _SPARSE_SHAPE

    def forward(left: Array, right: Array) -> Array:
        return np.asarray(kind(left) @ right)

    def backward(left: Array, right: Array) -> Array:
        return np.asarray((kind(right).T @ left.T).T)

    if not (_is_sound(rows, width, outputs, forward) and _is_sound(outputs, rows, width, backward)):
        raise _unsound("sparse")


def _unsound(library: str) -> NumericalFailure:
    return NumericalFailure(
        "matrix products on this machine are not plain sums of float64 products, so that no bound "
        f"on their rounding is known: use another {library} library, or arithmetic='fast', whose "
        "guarantee does not include rounding."
    )


def unrolled(outputs: int) -> int:
    """The number of rows of a left factor for this many outputs, rows of 0 included.

    Rows beyond a multiple of four would be multiplied one by one; one row alone is no matter.
    """
    return outputs if outputs == 1 else -(-outputs // _UNROLLED) * _UNROLLED


def padded(count: int) -> int:
    """The least power of two that is not less, so that few shapes are probed."""
    return 1 << max(count - 1, 0).bit_length()


def _is_sound(
    left: int, inner: int, right: int, product: Callable[[Array, Array], Array] = matmul
) -> bool:
    """Whether whole numbers are multiplied exactly, and rows stand for themselves."""
    rng = np.random.default_rng(0)
    largest = 2 ** ((_MANTISSA_BITS - 1 - max(inner - 1, 0).bit_length()) // 2)
    one = rng.integers(-largest, largest, size=(left, inner))
    other = rng.integers(-largest, largest, size=(inner, right))
    # A sum just below 2^53.
    one[0], other[:, 0] = largest - 1, largest - 1
    a, b = one.astype(np.float64), other.astype(np.float64)
    found = product(a, b)
    i, j = rng.integers(left, size=_SAMPLED_ENTRIES), rng.integers(right, size=_SAMPLED_ENTRIES)
    i[0], j[0] = 0, 0
    exact = (one[i] * other[:, j].T).sum(axis=1)
    scaled = a.copy()
    scaled[0] *= 2.0**60
    again = product(scaled, b)
    return bool(
        np.array_equal(found[i, j], exact)
        and np.array_equal(again[1:], found[1:])
        and np.array_equal(again[0], found[0] * 2.0**60)
    )


def _rounds_to_nearest() -> bool:
    """Whether float64 products of whole arrays round to nearest."""
    ones, half = np.ones(64), np.full(64, 2.0**-53)
    more, third = np.nextafter(half, 1.0), np.full(64, 3.0)
    return bool(
        (ones + half == 1.0).all()
        and (ones + more == 1.0 + 2.0**-52).all()
        and (-ones - more == -1.0 - 2.0**-52).all()
        and (ones / third == float.fromhex("0x1.5555555555555p-2")).all()
    )


def _keeps_subnormals(rows: int, width: int, outputs: int) -> bool:
    tiny: Array = np.full((rows, width), 2.0**-1060)
    with np.errstate(under="ignore"):
        kept = tiny @ np.full((width, outputs), 0.5)
    return bool((kept == width * 2.0**-1061).all())


def _halves_subnormals() -> bool:
    with np.errstate(under="ignore"):
        return bool((np.full(64, 2.0**-1060) * 0.5 == 2.0**-1061).all())
