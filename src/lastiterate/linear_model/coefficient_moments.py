r"""Confidence intervals of coefficients, from sums that are published with noise.

At the published parameters the sums over all examples of

=============================  ====================================================
gradient                       :math:`r_i x_i`, at most cR long
Hessian                        :math:`r'_i x_i x_i^T`, of Frobenius norm at most hR^2
covariance of the gradient     :math:`r_i^2 x_i x_i^T`, at most (cR)^2
=============================  ====================================================

are published with noise (r the clipped residual, r' its slope, x the row, which ends in a constant
of half the bound on features).  With the penalty's own part, one step of Newton's method leads from
the published parameters to the optimum of the clipped, penalised loss, up to

- what sampling leaves: the covariance of gradients over n, between two inverse Hessians;
- the noise of the gradient, between the same;
- the noise of the Hessian, times the length of the step.

All three are known, and no part of this needs the training to have converged.  The intervals are
for the optimum of that loss over the population that examples are drawn from, not for the
coefficients of a loss without clip and penalty.

**Sensitivity.** In units of their bounds the three parts have norm at most 1.  Two matrices
:math:`ss^T` of norm at most 1 are at most :math:`\sqrt2` apart.  With shares a, b, e of squares,
a + b + e = 1, an example moves the vector by at most 1, or by :math:`\sqrt{4a + 2b + 2e}` if it is
another.  Each row is cut to whole units beforehand, so sums are exact and a row adds its own part
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.rounding import up
from lastiterate.other_releases import INTERVAL_SHARES, Release
from lastiterate.train.counted_rows import counted_batches
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.objective import Objective
from lastiterate.train.release_noise import noisy

MOST_FEATURES = 200
_CONSTANT = 0.5  # of the statistics' intercept, in units of the bound on features
_BITS = 16  # of rows in products; sums over a block of those are exact
_BLOCK = 1 << 13
_CLEAR = 1.0  # the least curvature, in units of the noise of all


@dataclass(frozen=True)
class Moments:
    """Noisy means of gradients, Hessians and products of gradients, and the noise of each."""

    gradient: Array
    hessian: Array
    covariance: Array
    noise: tuple[float, float, float]  # standard deviations; of matrices, on their diagonals


@dataclass(frozen=True)
class Scale:
    """The units of rows, residuals and slopes, and the constant that rows end in."""

    radius: float
    residual: float
    slope: float
    constant: float

    @classmethod
    def of(cls, examples: Examples, objective: Objective) -> Scale:
        constant = _CONSTANT * examples.feature_bound if examples.intercept else 0.0
        radius = up(math.hypot(examples.feature_bound, constant), 1e-12)
        return cls(radius, objective.residual_bound, objective.curvature, constant)


def published_moments(
    examples: Examples,
    objective: Objective,
    parameters: Array,
    release: Release,
    source: Randomness,
) -> Moments:
    """The moments of examples at the published parameters, with the noise of the release."""
    scale, many = Scale.of(examples, objective), len(examples)
    exact = _packed(*exact_sums(examples, objective, parameters, scale))
    found = noisy(exact, release.noise_std, source, largest=2.0 * many) / many
    width = parameters.shape[1]
    gradient, rest = found[:width], found[width:]
    halves = np.split(rest, 2)
    units = (
        scale.residual * scale.radius,
        scale.slope * scale.radius**2,
        (scale.residual * scale.radius) ** 2,
    )
    factors = [unit / math.sqrt(share) for unit, share in zip(units, INTERVAL_SHARES, strict=True)]
    noise = tuple(release.noise_std / many * factor for factor in factors)
    return Moments(
        gradient * factors[0],
        _symmetric(halves[0], width) * factors[1],
        _symmetric(halves[1], width) * factors[2],
        (noise[0], noise[1], noise[2]),
    )


def exact_sums(
    examples: Examples, objective: Objective, parameters: Array, scale: Scale
) -> tuple[Array, Array, Array]:
    """Sums of gradients, Hessians and products of gradients, in units of their bounds."""
    width = parameters.shape[1]
    gradient, hessian, covariance = (np.zeros((width,) * rank, np.int64) for rank in (1, 2, 2))
    unit = 2.0**-_BITS
    for start in range(0, len(examples), _BLOCK):
        # Factors are to be those of memory that nobody else writes to.
        own = examples.read(slice(start, start + _BLOCK)).own()
        for batch in counted_batches(own, slice(None)):
            dense = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
            outputs = dense @ parameters[0, : dense.shape[1]]
            if examples.intercept:
                outputs += examples.intercept * parameters[0, -1]
                dense = np.column_stack([dense, np.full(len(dense), scale.constant)])
            if examples.offset is not None:
                outputs += examples.offset[0]
            residual = objective.residual(outputs[np.newaxis], batch.targets)[0] / scale.residual
            slope = objective.slopes(outputs, batch.targets) / scale.slope
            weights = np.ones(len(dense)) if batch.weights is None else batch.weights
            if batch.silent is not None:
                weights = np.where(batch.silent, 0.0, weights)
            residual = np.clip(weights * residual, -1.0, 1.0)
            root = np.sqrt(np.clip(weights * slope, 0.0, 1.0))
            rows = dense / (scale.radius * unit)
            gradient += _whole(np.trunc(residual[:, np.newaxis] * rows).sum(axis=0))
            curved, pulled = (
                np.trunc(factor[:, np.newaxis] * rows) for factor in (root, np.abs(residual))
            )
            hessian += _whole(curved.T @ curved)
            covariance += _whole(pulled.T @ pulled)
    first, second, third = (one.astype(np.float64) for one in (gradient, hessian, covariance))
    return first * unit, second * unit**2, third * unit**2


def _whole(sums: Array) -> IntArray:
    """Exact sums over a block, to be added up exactly, of however many there are."""
    return sums.astype(np.int64)


def _packed(gradient: Array, hessian: Array, covariance: Array) -> Array:
    """The vector that noise is added to: each matrix counts by its Frobenius norm."""
    parts = [gradient, _half(hessian), _half(covariance)]
    roots = np.sqrt(INTERVAL_SHARES)
    return np.concatenate([root * part for root, part in zip(roots, parts, strict=True)])


def _half(matrix: Array) -> Array:
    upper = np.triu_indices(len(matrix))
    return matrix[upper] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))


def _symmetric(half: Array, width: int) -> Array:
    upper = np.triu_indices(width)
    matrix = np.zeros((width, width))
    matrix[upper] = half / np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    return matrix + np.triu(matrix, 1).T


def estimate_and_covariance(
    moments: Moments, examples: Examples, parameters: Array, l2: float
) -> tuple[Array, Array]:
    """The optimum that the moments point to, and the covariance of its error.

    Both are of coefficients, and of the intercept last if there is one.  The covariance is infinite
    where the noise of the Hessian may hide its smallest curvature.
    """
    width = parameters.shape[1]
    scaling = np.ones(width)  # of the coordinates of the moments, to those of coefficients
    own = parameters[0].copy()
    penalty = np.full(width, l2)
    if examples.intercept:
        scaling[-1] = _CONSTANT * examples.feature_bound
        own[-1] *= examples.intercept / scaling[-1]
        penalty[-1] *= (scaling[-1] / examples.intercept) ** 2
    hessian = moments.hessian + np.diag(penalty)
    gradient = moments.gradient + penalty * own
    of_gradient, of_hessian, _ = moments.noise
    least = float(np.linalg.eigvalsh(hessian)[0])
    if not least > _CLEAR * of_hessian * math.sqrt(2.0 * width):
        return own * scaling, np.full((width, width), math.inf)
    inverse = np.linalg.inv(hessian)
    step = inverse @ gradient
    squares = float(step @ step)
    between = of_gradient**2 * np.eye(width) + _positive(moments.covariance) / len(examples)
    between += of_hessian**2 * (squares * np.eye(width) + np.outer(step, step)) / 2.0
    covariance = inverse @ between @ inverse
    return (own - step) * scaling, covariance * np.outer(scaling, scaling)


def _positive(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
