"""Steinke et al. 2024: a heuristic for the last iterate of DP-SGD, and never a bound.

They take all losses for linear, so that the last iterate is a sum of noisy gradients: with r =
L/(b sigma) and probability p of taking part in each of T steps it is r Bin(T, p) + N(0, T) against
N(0, T).  Their paper has counterexamples in which more leaks.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Approximation, Bound, Citation, Estimate
from lastiterate.bounds.quantities import sensitivity_over_noise
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.drawn import PoissonSampled
from lastiterate.run.batch_rules.ordered import FullBatch
from lastiterate.run.training_run import TrainingRun

PAPER = "published/steinke-et-al"
DELTA = 1e-5  # at which the Gaussian curve has the heuristic's epsilon
_HALVINGS = 80


def linear_estimate(run: TrainingRun) -> Estimate:
    """The mu whose Gaussian curve has, at delta 1e-5, the epsilon of linear losses."""
    shift = sensitivity_over_noise(run) / math.sqrt(run.steps)
    probability = run.batches.share  # 1 for full batches
    if probability == 1.0:
        return Estimate(shift * run.steps)
    from scipy.stats import binom  # which takes long to load

    counts = np.arange(run.steps + 1, dtype=np.float64)
    chances = binom.pmf(counts, run.steps, probability)
    kept = chances > 1e-18
    means, chances = shift * counts[kept], chances[kept]
    epsilon = _least(lambda e: linear_delta(means, chances, e) <= DELTA)
    mu = _least(lambda mu: GaussianProfile(mu).delta(epsilon) >= DELTA)
    return Estimate(mu, lambda e: linear_delta(means, chances, e))


def linear_delta(means: Array, chances: Array, epsilon: float) -> float:
    """The hockey-stick divergence of sum chances N(mean, 1) and N(0, 1), the larger direction.

    Their ratio increases, so that each direction has one threshold.
    """

    def log_ratio(x: float) -> float:
        exponents = means * (x - means / 2.0)
        top = float(exponents.max())
        return top + math.log(float(chances @ np.exp(exponents - top)))

    def beyond(x: float) -> tuple[float, float]:
        return float(chances @ ndtr(means - x)), float(ndtr(-x))

    scale = math.exp(epsilon)
    mixed, alone = beyond(_root(log_ratio, epsilon, means))
    # Below the other threshold N(0, 1) has more.
    below = _root(log_ratio, -epsilon, means)
    other = float(ndtr(below)) - scale * float(chances @ ndtr(below - means))
    return max(mixed - scale * alone, other, 0.0)


def _root(log_ratio: Callable[[float], float], level: float, means: Array) -> float:
    """The argument at which an increasing function reaches a level."""
    low, high = -60.0, 60.0 + float(means.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if log_ratio(middle) < level else (low, middle)
    return (low + high) / 2.0


def _least(is_met: Callable[[float], bool]) -> float:
    """The least number that meets a condition which larger ones meet too; inf if none does."""
    low, high = 0.0, 1.0
    while not is_met(high):
        low, high = high, 2.0 * high
        if high > 1e6:
            return math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high


BOUNDS: tuple[Bound, ...] = ()
APPROXIMATIONS = (
    Approximation(
        id=f"{PAPER}/linear-estimate",
        gives="an approximate mu for the last iterate, as if all losses were linear",
        covers=(FullBatch, PoissonSampled),
        needs=(conditions.ONLY_LAST_ITERATE, conditions.CONSTANT, conditions.NOISY),
        source=Citation(
            "Steinke, Nasr, Ganesh, Balle, Choquette-Choo, Jagielski, Hayes, Thakurta, Smith and "
            "Terzis",
            2024,
            "The last iterate advantage: empirical auditing and principled heuristic analysis of "
            "differentially private SGD",
            "the heuristic for linear losses",
        ),
        evaluate=linear_estimate,
    ),
)
