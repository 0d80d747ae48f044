r"""Training steps as linear recursions of a state of two vectors.

The state of a run with momentum is (x, buffer), that of an averaged run (x, average).  With the
noisy gradient g of step k, taken at x,

.. math:: z_k = A_k z_{k-1} + B_k g, \qquad \text{released: } F z_T .

Every entry of A_k and B_k is public.  They are kept as formulas of the settings of each step, so
that they can be evaluated in floats for a search and in intervals for a proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.intervals import Interval
from lastiterate._numerics.rounding import Array

Entries: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
"""a00, a01, a10, a11 of A_k and b0, b1 of B_k, for all steps at once."""


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

    @abstractmethod
    def last(self, count: int) -> Recursion:
        """The recursion of the last `count` steps."""

    @property
    @abstractmethod
    def is_constant(self) -> bool:
        """Whether all steps but the first have the same settings."""

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

    @property
    def is_constant(self) -> bool:
        """Whether all steps but the first have the same settings."""
        return all(
            bool(np.all(values[1:] == values[-1]))
            for values in (self.step_size, self.momentum, self.dampening, self.is_empty)
        )

    def last(self, count: int) -> Momentum:
        """The recursion of the last `count` steps."""
        first = self.steps - count
        return Momentum(
            self.step_size[first:],
            self.momentum[first:],
            self.dampening[first:],
            self.is_empty[first:],
            self.nesterov,
        )

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

    @property
    def is_constant(self) -> bool:
        """Whether all steps but the first have the same settings."""
        return all(
            bool(np.all(values[1:] == values[-1])) for values in (self.step_size, self.decay)
        )

    def last(self, count: int) -> Averaged:
        """The recursion of the last `count` steps."""
        first = self.steps - count
        return Averaged(self.step_size[first:], self.decay[first:])

    def entries_in(self, number: Any) -> Entries:
        """The entries of A_k and B_k, computed in the arithmetic that `number` builds."""
        eta, kept = number(self.step_size), number(self.decay)
        one, zero = number(np.ones(self.steps)), number(np.zeros(self.steps))
        new = one - kept
        return one, zero, new, kept, -eta, -(new * eta)
