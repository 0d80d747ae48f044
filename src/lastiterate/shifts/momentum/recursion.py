r"""Training steps as linear recursions of a state of two vectors.

The state of a run with momentum is (x, buffer), that of an averaged run (x, average).  With the
noisy gradient g of step k, taken at x,

.. math:: z_k = A_k z_{k-1} + B_k g, \qquad \text{released: } F z_T .

Every entry of A_k and B_k is public.  They are kept as formulas of the settings of each step, so
that they can be evaluated in floats for a search and in intervals for a proof.

The functions are for symmetric 2 x 2 matrices ((a, b), (b, c)), many at once, as arrays of their
(a, b, c).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array, Interval

Entries: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
"""a00, a01, a10, a11 of A_k and b0, b1 of B_k, for all steps at once."""

Symmetric = tuple[float, float, float]
"""(a, b, c) of a single matrix."""


@dataclass(frozen=True)
class Recursion(ABC):
    """The settings of every step, as arrays of one entry per step."""

    step_size: Array

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.step_size.size)

    @property
    @abstractmethod
    def released(self) -> tuple[float, float]:
        """F: the weights of the two vectors in what is released."""

    @abstractmethod
    def entries_in(self, number: Any) -> Entries:
        """The entries of A_k and B_k, computed in the arithmetic that `number` builds."""

    @property
    def is_constant(self) -> bool:
        """Whether all steps but the first have the same settings."""
        return all(bool(np.all(values[1:] == values[-1])) for values in self._settings.values())

    def last(self, count: int) -> Self:
        """The recursion of the last `count` steps."""
        first = self.steps - count
        return replace(self, **{name: values[first:] for name, values in self._settings.items()})

    @property
    def _settings(self) -> dict[str, Array]:
        """The settings that have an entry per step."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in every.items() if isinstance(value, np.ndarray)}

    def entries(self) -> Entries:
        """The entries as arrays of floats, rounded."""
        return self.entries_in(lambda values: np.asarray(values, dtype=np.float64))

    def enclosed_entries(self) -> Entries:
        """The entries as intervals that contain them."""
        return self.entries_in(Interval.exact)


@dataclass(frozen=True)
class Momentum(Recursion):
    r"""Steps of `torch.optim.SGD` with momentum.

    .. math:: \text{buffer} \leftarrow \beta\, \text{buffer} + (1 - \tau) g, \qquad
              x \leftarrow x - \eta\, \text{buffer}

    or, for Nesterov's form (without dampening), :math:`x \leftarrow x - \eta (g + \beta\,
    \text{buffer})`.  A step that begins with an empty buffer, as the first one does, stores g
    itself: there `is_empty` is True, and the dampening must be 0.
    """

    momentum: Array
    dampening: Array
    is_empty: NDArray[np.bool_]
    nesterov: bool = False

    @property
    def released(self) -> tuple[float, float]:
        """x itself."""
        return (1.0, 0.0)

    def entries_in(self, number: Any) -> Entries:
        """The entries of A_k and B_k, computed in the arithmetic that `number` builds."""
        eta, beta = number(self.step_size), number(self.momentum)
        one, zero = number(np.ones(self.steps)), number(np.zeros(self.steps))
        memory = number(np.where(self.is_empty, 0.0, self.momentum))  # of the former buffer
        if self.nesterov:
            return one, -(eta * beta * memory), zero, memory, -(eta * (one + beta)), one
        new = one - number(self.dampening)
        return one, -(eta * memory), zero, memory, -(eta * new), new


@dataclass(frozen=True)
class Averaged(Recursion):
    r"""Plain steps whose average :math:`\bar x_k = a_k \bar x_{k-1} + (1 - a_k) x_k` is released.

    `decay` holds the a_k: a constant is an exponential average, 0 in the step of the first update
    where that copies x, and 1 - 1/j in the j-th of the last steps a tail average.
    """

    decay: Array

    @property
    def released(self) -> tuple[float, float]:
        """The average."""
        return (0.0, 1.0)

    def entries_in(self, number: Any) -> Entries:
        """The entries of A_k and B_k, computed in the arithmetic that `number` builds."""
        eta, kept = number(self.step_size), number(self.decay)
        one, zero = number(np.ones(self.steps)), number(np.zeros(self.steps))
        new = one - kept
        return one, zero, new, kept, -eta, -(new * eta)


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
    """The least matrix that is above both and diagonal in the basis in which both are diagonal."""
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
