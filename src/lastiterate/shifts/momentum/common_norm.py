"""A quadratic norm that no step of a linear recursion increases by more than a factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lastiterate._numerics.intervals import Interval
from lastiterate._numerics.rounding import Array
from lastiterate.shifts.momentum.certificate import Step, has_no_negative_eigenvalue, image
from lastiterate.shifts.momentum.symmetric import as_entries


@dataclass(frozen=True)
class CommonNorm:
    """|z|_P with |A(l) z|_P <= `rate` |z|_P at both ends of the curvature, as far as floats tell.

    Distances shrink in it where `rate` < 1, and then mu is bounded in the number of steps.
    """

    rate: float
    matrix: Array

    @property
    def inverse(self) -> Array:
        """P^-1."""
        return np.asarray(np.linalg.inv(self.matrix))

    @property
    def root(self) -> Array:
        """S with S'S = P: in the coordinates S z the norm is Euclidean."""
        return np.asarray(np.linalg.cholesky(self.matrix).T)


def common_norm(transitions: tuple[Array, Array]) -> CommonNorm:
    """The norm with the least rate for these two 2 x 2 matrices, by a search over P.

    Any P serves: the rate is computed from it.
    """
    low, high = (tuple(map(float, step.ravel())) for step in transitions)
    return _found_norm(low, high)


@lru_cache(maxsize=64)
def _found_norm(*entries: tuple[float, ...]) -> CommonNorm:
    from scipy.optimize import minimize  # slow to load, and not needed for plain steps

    low, high = (np.array(step).reshape(2, 2) for step in entries)
    transitions = (low, high)
    scale = _scale(transitions)
    scaled = [scale @ step @ np.linalg.inv(scale) for step in transitions]

    def rate(point: Array) -> float:
        root = np.linalg.cholesky(_positive(point))
        inverse = np.linalg.inv(root)
        return max(float(np.linalg.norm(root.T @ step @ inverse.T, 2)) for step in scaled)

    found = min(
        (
            minimize(rate, np.array([np.log(first), 0.0]), method="Nelder-Mead", options=_SEARCH)
            for first in (0.05, 0.3, 1.0, 3.0)
        ),
        key=lambda result: float(result.fun),
    )
    matrix = scale.T @ _positive(found.x) @ scale
    return CommonNorm(float(found.fun), matrix / matrix[0, 0])


_SEARCH: Any = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 2_000}


def _positive(point: Array) -> Array:
    second = np.exp(np.clip(point[0], -30.0, 30.0))
    off = np.tanh(np.clip(point[1], -8.0, 8.0)) * np.sqrt(second)
    return np.array([[1.0, off], [off, second]])


def _scale(transitions: tuple[Array, Array]) -> Array:
    """A diagonal matrix that makes the off-diagonal entries of the steps alike."""
    top = max(abs(float(step[0, 1])) for step in transitions)
    low = max(abs(float(step[1, 0])) for step in transitions)
    ratio = np.sqrt(top / low) if top > 0.0 and low > 0.0 else 1.0
    return np.diag([1.0, float(ratio)])


def is_surely(norm: CommonNorm, steps: tuple[Step, ...], rate: float) -> bool:
    """Whether A P^-1 A' <= rate^2 P^-1 for each of these enclosed steps, decided in intervals."""
    x, y, z = (Interval.exact([value]) for value in as_entries(norm.inverse))
    allowed = Interval.exact([rate]) * Interval.exact([rate])
    for step in steps:
        first, cross, second = image(step, (x, y, z))
        left = (allowed * x - first, allowed * y - cross, allowed * z - second)
        if not has_no_negative_eigenvalue(left):
            return False
    return True
