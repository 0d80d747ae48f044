"""Projection and rounding of points that noise was added to, whether they are models or draws."""

import math

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.errors import NumericalFailure
from lastiterate.run.domain import Ball, Domain

GRID_BITS = 24


def project(point: Array, domain: Domain) -> None:
    """Bring a point into the domain around 0, in place."""
    if isinstance(domain, Ball):
        norm = float(np.linalg.norm(point))
        if norm > domain.diameter / 2:
            point *= domain.diameter / 2 / norm


def on_grid(point: Array, *, noise: float) -> Array:
    """Rounded to a grid far below the standard deviation of the noise it has."""
    if not np.isfinite(point).all():
        raise NumericalFailure("the parameters are not finite, so none are published.")
    # A power of two, so that the rounding itself is exact.
    exponent = math.frexp(noise)[1] - GRID_BITS
    return np.ldexp(np.rint(np.ldexp(point, -exponent)), exponent)
