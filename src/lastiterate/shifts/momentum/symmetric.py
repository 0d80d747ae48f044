"""Symmetric 2 x 2 matrices ((a, b), (b, c)), many at once, as arrays of their (a, b, c)."""

import math

import numpy as np

from lastiterate._numerics.rounding import Array

Symmetric = tuple[float, float, float]
"""(a, b, c) of a single matrix."""


def outer(x: Array, y: Array) -> Array:
    """(x, y) (x, y)'."""
    return np.stack([x * x, x * y, y * y], axis=-1)


def determinant(matrix: Array) -> Array:
    """a c - b^2."""
    return np.asarray(matrix[..., 0] * matrix[..., 2] - matrix[..., 1] ** 2)


def mixed(one: Array, other: Array) -> Array:
    """The coefficient of t in the determinant of `one` + t `other`."""
    return np.asarray(
        one[..., 0] * other[..., 2] + one[..., 2] * other[..., 0] - 2 * one[..., 1] * other[..., 1]
    )


def congruence(a00: Array, a01: Array, a10: Array, a11: Array) -> Array:
    """The linear map of (a, b, c) that takes X to A X A', as 3 x 3 matrices."""
    rows = [
        [a00 * a00, 2 * a00 * a01, a01 * a01],
        [a00 * a10, a00 * a11 + a01 * a10, a01 * a11],
        [a10 * a10, 2 * a10 * a11, a11 * a11],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def are_definite(matrix: Array) -> bool:
    """Whether all of these are positive definite, as far as floats tell."""
    return bool(np.all(matrix[..., 0] > 0.0) and np.all(determinant(matrix) > 0.0))


def largest_multiple(matrix: Array, other: Array) -> Array:
    """The largest t for which `matrix` - t `other` has no negative eigenvalue.

    `matrix` is positive definite, `other` is not 0 and has no negative eigenvalue.
    """
    middle = mixed(matrix, other)
    whole = determinant(matrix)
    root = np.sqrt(np.maximum(middle**2 - 4 * whole * determinant(other), 0.0))
    return np.asarray(2 * whole / (middle + root))


def as_matrix(entries: Array) -> Array:
    """One of them as a 2 x 2 array."""
    return np.array([[entries[0], entries[1]], [entries[1], entries[2]]])


def as_entries(matrix: Array) -> Array:
    """(a, b, c) of a symmetric 2 x 2 array."""
    return np.array([matrix[0, 0], (matrix[0, 1] + matrix[1, 0]) / 2, matrix[1, 1]])


def join(one: Symmetric, other: Symmetric) -> Symmetric:
    """The least matrix above both among those that are diagonal where both of them are."""
    root = math.sqrt(one[0])
    low = one[1] / root
    last = math.sqrt(one[2] - low * low)
    # other - one in coordinates in which `one` is the identity
    x = other[0] / (root * root) - 1.0
    y = (other[1] / root - (x + 1.0) * low) / last
    z = (other[2] - 2.0 * low * (other[1] / root) + (x + 1.0) * low * low) / (last * last) - 1.0
    middle, half = 0.5 * (x + z), math.hypot(0.5 * (x - z), y)
    large, small = middle + half, middle - half
    if large <= 0.0:
        return one
    if small >= 0.0:
        return other
    part = large / (large - small)
    x, y, z = part * (x - small), part * y, part * (z - small)
    return (
        one[0] + root * root * x,
        one[1] + root * (low * x + last * y),
        one[2] + low * low * x + 2.0 * low * last * y + last * last * z,
    )
