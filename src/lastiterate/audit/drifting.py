r"""Witnesses whose slopes vary freely from step to step: quadratics seen while drifting past.

All examples share one convex loss h, whose gradient is so large that the iterate travels, in every
step, much farther than the noise can carry it.  What curvature h has where step k happens is then
free within [m, M], so the slopes :math:`c_k \in [1 - \eta_k M, 1 - \eta_k m]` are, and so is
whether the example's gradient differs there.  In the limit of long ways the deviation from the
noiseless path is a Gaussian autoregression: with :math:`w_k = \prod_{j>k} c_j`,

.. math:: \mu = \sum_k w_k s_k V_k \Big/ \sqrt{\sum_k w_k^2 n_k^2 + \rho^2}.

Over weights with :math:`|w_k| \le c\,|w_{k+1}|` the largest such mu is the norm of a projection
onto a cone, an isotonic regression; where :math:`\eta M \ge 1` nothing else limits the weights,
and the bound of the fixed order is attained.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import isotonic_regression, minimize

from lastiterate._numerics.arrays import Array
from lastiterate.audit.admitted import Admitted
from lastiterate.audit.maps import linear
from lastiterate.audit.pair import Step

_REMEMBERED = 1e-12  # earlier steps weigh less
_IMPROVED_STEPS = 5_000


def exposing_slopes(may: Admitted, seen: Array, release_noise_std: float) -> Array:
    """Slopes that tell participations in the steps `seen` (0 or 1 each) apart best."""
    crossed = (may.gentlest <= 0.0) & (may.steepest >= 0.0)
    least = np.where(crossed, 0.0, np.minimum(np.abs(may.gentlest), np.abs(may.steepest)))
    most = np.maximum(np.abs(may.steepest), np.abs(may.gentlest))
    weights = _isotonic_weights(most, may.shifts * seen, may.noise_stds**2, release_noise_std)
    slopes = np.array(most)
    # The slope of a step makes the weight of the step before it.
    ahead = weights[1:]
    wanted = np.divide(weights[:-1], ahead, out=np.ones_like(ahead), where=ahead > 0.0)
    slopes[1:] = np.clip(wanted, least[1:], most[1:])
    if least.max() > 0.0 and slopes.size <= _IMPROVED_STEPS:
        slopes = _improved(slopes, (least, most), may, seen, release_noise_std)
    return slopes


def _isotonic_weights(most: Array, masses: Array, variances: Array, release: float) -> Array:
    """The best weights, up to a factor, with w_k at most `most` of step k + 1 times w_{k+1}."""
    reach = np.append(np.cumprod(most[:0:-1])[::-1], 1.0)
    kept = np.flatnonzero(reach > _REMEMBERED * reach.max())[0]
    scale, mass, variance = reach[kept:], masses[kept:], variances[kept:]
    values, counts = scale * mass, scale**2 * variance
    if release > 0.0:
        values, counts = np.append(values, 0.0), np.append(counts, release**2)
    counts = np.maximum(counts, 1e-30 * counts.max())
    fitted = isotonic_regression(values / counts, weights=counts).x
    fitted = fitted[: scale.size]
    if not fitted.max() > 0.0:
        return reach
    return np.concatenate([np.zeros(kept), scale * fitted / fitted.max()])


def gaussian_mu(slopes: Array, may: Admitted, seen: Array, release_noise_std: float) -> float:
    """mu of the autoregression with these slopes."""
    weights = np.append(np.cumprod(slopes[:0:-1])[::-1], 1.0)
    variance = float(((weights * may.noise_stds) ** 2).sum()) + release_noise_std**2
    return abs(float(weights @ (may.shifts * seen))) / math.sqrt(variance)


def _improved(
    slopes: Array, ends: tuple[Array, Array], may: Admitted, seen: Array, release: float
) -> Array:
    """By gradient ascent on the logarithm of mu, in the logarithms of the slopes."""
    low, high = (np.log(np.maximum(end, 1e-12)) for end in ends)
    masses, variances = may.shifts * seen, may.noise_stds**2

    def descent(logs: Array) -> tuple[float, Array]:
        weights = np.exp(np.append(np.cumsum(logs[:0:-1])[::-1], 0.0))
        gap, variance = weights @ masses, weights**2 @ variances + release**2
        each = weights * masses / gap - weights**2 * variances / variance
        gradient = np.concatenate([[0.0], np.cumsum(each)[:-1]])
        return float(-math.log(gap) + math.log(variance) / 2.0), -gradient

    start = np.clip(np.log(np.maximum(slopes, 1e-12)), low, high)
    found = minimize(
        descent, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True))
    )
    return np.asarray(np.clip(np.exp(found.x), *ends))


def drifting_steps(slopes: Array, may: Admitted, balance: float = 0.0) -> list[Step]:
    """The deviation from the path; `balance` of the shift is the first world's."""
    made = []
    for slope, shift, noise in zip(slopes, may.shifts, may.noise_stds, strict=True):
        ends = (linear(slope, -balance * shift), linear(slope, (1.0 - balance) * shift))
        made.append(Step(linear(slope), ends, float(noise)))
    return made
