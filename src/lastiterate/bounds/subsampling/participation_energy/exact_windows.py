r"""The choice of the last R steps to solve exactly, and of the shifts before them.

With q the energy of the last R steps, Z the residual distance of earlier participations and e the
energy of the shifts before,

.. math:: \mu^2 \le (\sqrt q + \kappa Z)^2 + e , \qquad
    \kappa = c^R / \sqrt{1 + c^2 + .. + c^{2(R-1)} + h}

(`docs/tightness.md#participation-energy`).  Every choice is valid; rough quantiles compare them.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import at_least
from lastiterate.bounds.subsampling.participation_energy.residual_law import (
    RATES,
    peaks,
    shift_energy,
    terms,
)

LONGEST_WINDOW = 8_000
_SLOPES = (0.5, 0.8, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.3, 2.7, 3.2, 4.0)
_LONGEST_SECOND = 4_000  # of the second window
_MEMORY = 12.0  # time constants
_LEAST_POWER = math.exp(-700.0)  # smaller ones would underflow


class ExactWindow(NamedTuple):
    """The last `length` steps, and the shift in the step before them (c^j of it at age j)."""

    length: int
    shift: float


def cost_per_residual(gap: float, window: int, release_in_steps: float) -> float:
    """kappa, rounded up."""
    log_c = log_of(gap)
    kept = max(power(log_c, window), _LEAST_POWER)
    return at_least(
        kept / math.sqrt(sum_of_powers(2 * log_c, window) + release_in_steps), ulps=10_000
    )


class _Quantiles(NamedTuple):
    """Quantiles at which residuals, in e-folds, and energies, in variances, are compared."""

    residual: float
    energy: float


_NEAR, _FAR = _Quantiles(0.5, 3.0), _Quantiles(3.0, 8.0)


@lru_cache(maxsize=64)
def best_windows(
    gap: float,
    steps: int,
    probability: float,
    cap: float,
    release_in_steps: float,
    longest: int = LONGEST_WINDOW,
) -> tuple[ExactWindow, ...]:
    """The windows and shifts whose cost looks least, near the mean and far out."""
    problem = _Problem(gap, steps, probability, cap, release_in_steps, longest)
    first, second = (_best(problem, quantiles) for quantiles in (_NEAR, _FAR))
    return (first,) if second == first or second.length > _LONGEST_SECOND else (first, second)


class _Problem(NamedTuple):
    gap: float
    steps: int
    probability: float
    cap: float
    release_in_steps: float
    longest: int


def _best(problem: _Problem, quantiles: _Quantiles) -> ExactWindow:
    gap, steps, probability = problem[:3]
    # Older steps are neglected, so that very long runs all have the same window.
    steps = min(steps, math.ceil(_MEMORY / gap)) if gap > 0.0 else steps
    longest = min(steps, problem.longest)
    lengths = sorted({max(1, round(longest * 0.9**k)) for k in range(90)})
    # Shifts before the window help if its length is comparable with the memory of the run.
    memory = min(1.0 / gap, 2.0 * longest) if gap > 0.0 else 2.0 * longest
    choices = [ExactWindow(length, 0.0) for length in lengths] + [
        ExactWindow(length, slope * probability * power(log_of(gap), length))
        for length in lengths
        if length < steps and 0.2 * memory <= length <= 3.0 * memory and gap < 0.5
        for slope in _SLOPES
    ]
    shorter = problem._replace(steps=steps)
    return min(choices, key=lambda choice: _cost(choice, shorter, quantiles))


def _cost(window: ExactWindow, problem: _Problem, quantiles: _Quantiles) -> float:
    gap, steps, probability, cap, release_in_steps, _ = problem
    length, shift = window
    spread = probability * (1 - probability) * (math.log1p(length / (1 + release_in_steps)) + 0.58)
    inside = math.sqrt(probability**2 * length + quantiles.energy * spread)
    left = min(cap, _residual(problem, steps - length, shift, quantiles.residual))
    return math.hypot(
        inside + cost_per_residual(gap, length, release_in_steps) * left,
        math.sqrt(shift_energy(gap, steps - length, shift)),
    )


def _residual(problem: _Problem, steps: int, shift: float, folds: float) -> float:
    """A quantile of the residual distance, roughly."""
    if steps == 0:
        return 0.0
    listed = terms(problem.gap, steps, most=256)
    rates = RATES[::6]
    largest = peaks(listed, problem.probability, shift, rates)
    return float(np.min((largest + folds) / rates))
