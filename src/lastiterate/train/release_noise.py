"""Statistics published with noise that lies on the grid of the noise, exactly rounded.

A statistic is rounded to a grid of 2^-40 of its noise, and the floor of the noise on that grid is
added: what is published is the floor of a number with exact Gaussian noise.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate._numerics.rounding import Array, up
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import (
    INTERVALS,
    MEAN,
    OUTLIER_COUNTS,
    OUTLIERS,
    RATES,
    UNDECLARED,
    Release,
)
from lastiterate.run.training_run import Ball, Domain
from lastiterate.train.grid import BITS, LEAST_BITS, WHOLE_BITS
from lastiterate.train.noise import Randomness

_UNIT_ROUNDOFF = 2.0**-53


def noisy(values: Array, noise_std: float, source: Randomness, *, largest: float) -> Array:
    """The values with noise, as numbers on its grid; none of them is above `largest`, publicly."""
    bits = release_bits(noise_std, largest)
    unit = noise_std * 2.0**-bits
    whole = np.rint(values / unit).astype(np.int64)
    # After the values are computed: what rounds them must not depend on it.
    return np.asarray(unit * (whole + source.rounded_normals(np.shape(values), bits)), np.float64)


def release_bits(noise_std: float, largest: float) -> int:
    """How many bits finer than its noise the grid is on which no such value overflows."""
    spare = WHOLE_BITS - math.ceil(math.log2(largest / noise_std + 16.0))
    if spare < LEAST_BITS:
        must_be = f"at least {largest * 2.0 ** (LEAST_BITS - WHOLE_BITS):g}, for so many examples"
        raise InvalidParameter("noise_std", noise_std, must_be=must_be)
    return min(BITS, spare)


def released_size(kind: str, features: int, classes: int) -> int:
    """How many numbers a release of this kind has, at most."""
    sizes = {
        MEAN: features + 1,
        OUTLIERS: len(OUTLIER_COUNTS),
        UNDECLARED: features,
        RATES: 3 * classes,
        INTERVALS: (features + 1) * (features + 4),  # two vectors and two halves of matrices
    }
    return sizes.get(kind, 1)


def released_error(release: Release, examples: int, size: int) -> float:
    """How far what noise is added to may be from the statistic: its rounding, and the grid."""
    largest = 2.0 * examples
    unit = release.noise_std * 2.0 ** -release_bits(release.noise_std, largest)
    exact = 4.0 * _UNIT_ROUNDOFF * largest + 0.5 * unit
    return up(exact * math.sqrt(size), 1e-6)


def project(point: Array, domain: Domain) -> None:
    """Bring a point into the domain around 0, in place."""
    if isinstance(domain, Ball):
        norm = float(np.linalg.norm(point))
        if norm > domain.diameter / 2:
            point *= domain.diameter / 2 / norm
