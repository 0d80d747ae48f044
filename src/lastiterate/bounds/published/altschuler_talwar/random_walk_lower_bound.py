r"""Altschuler and Talwar 2022: a lower bound for sampled batches on a bounded domain.

One gradient is L and all others are 0, so that one data set gives a symmetric walk in an interval
and the other one a walk that drifts by eta L/b with probability b/n in every step.
Tbar = .75 D n/(eta L) steps carry it across.
"""

import math
from dataclasses import dataclass

import numpy as np

from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Hypothesis, LowerBound
from lastiterate.bounds.published.altschuler_talwar.by_iteration import PAPER, cite
from lastiterate.profile.lower import OneTestLowerProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.loss import Gradients
from lastiterate.run.training_run import Ball, TrainingRun

_LEAST_DIAMETER = 1e3  # c_D of footnote 11
_MOST_NOISE = 1e-3  # c_sigma
_RATE = 1e-7  # c_alpha
_ORDER = 100.0  # alpha bar
# Phi(.1/sqrt(.001)) = .99922, less 2 exp(-5.625) and exp(-5) for their event E to fail.
_POWER = 0.985


def sampled_bounded_lower_bound(run: TrainingRun) -> OneTestLowerProfile:
    r"""One test that tells a walk with random drift from one without.

    **Bound.** The test "x >= 0" has probability 1/2 without the drift and .985 with it; so the run
    is not (.1, .01)-DP, nor (100, .005)-Renyi.

    **Holds when.** losses may be linear, iterates are projected, :math:`D \ge 1000\,\eta L`,
    :math:`\sigma^2 \le D^2/(1000\,\eta^2\bar T)` and :math:`T \ge \bar T = .75\,Dn/(\eta L)`.  L is
    the largest of one gradient, the other being 0.

    **Tight** to a constant factor in the Renyi divergence, at the largest noise allowed.

    **Source.** Theorem 4.1 and footnote 11, by what its proof shows: they allow .1 for an event
    whose probability they bound by .014, and then print .99993 for .99922.

    **Computed as** a constant; rounded down.
    """
    del run
    return OneTestLowerProfile(fpr=0.5, power=_POWER)


@dataclass(frozen=True)
class RenyiRate:
    """Lower bounds on the Renyi divergence of one order: as (4.1) prints it, and as proved."""

    order: float
    printed: float
    proved: float


def renyi_rate(run: TrainingRun) -> RenyiRate:
    r"""The rate of Theorem 4.1, as printed and as far as its proof goes.

    (4.1) is :math:`10^{-5} L^2 \min(T, \bar T)/(n\sigma)^2` at order 100.  The proof shows that
    Tbar steps are not (100, .005)-Renyi, whatever sigma is; for smaller sigma (4.1) is larger and
    remains unproved.  The test of `sampled_bounded_lower_bound` gives more than .005: the
    divergence of its two outcomes.  Shorter runs compose to one of Tbar steps, so they have at
    least their share of it, from the worst start.

    Parameters
    ----------
    run : TrainingRun
        Sampled batches on a ball, within the theorem's range but for the number of steps.

    Returns
    -------
    RenyiRate
        `printed` and `proved`, at order 100.

    Raises
    ------
    NoBoundApplies
        Where the run is outside the range of the theorem.
    """
    long = 0 if not isinstance(run.domain, Ball) or not run.is_constant else _long_run(run)
    BOUNDED_LOWER.profile(run.replace(steps=max(run.steps, long)))
    n, sigma = run.batches.examples, float(np.max(run.noise_std))
    printed = _RATE * _ORDER * (_one_gradient(run) / (n * sigma)) ** 2 * min(run.steps, long)
    power, less = math.log(_POWER), math.log1p(-_POWER)
    whole = np.logaddexp(_ORDER * power, _ORDER * less) / (_ORDER - 1.0) + math.log(2.0)
    return RenyiRate(_ORDER, printed, float(whole) / math.ceil(long / run.steps))


def _one_gradient(run: TrainingRun) -> float:
    bound = run.gradient_bound
    return run.sensitivity if bound is None else min(bound, run.sensitivity)


def _long_run(run: TrainingRun) -> int:
    """The number of steps Tbar, rounded up."""
    diameter = quantities.diameter(run)  # in units of the step size
    return math.ceil(0.75 * diameter * run.batches.examples / _one_gradient(run))


def _outside_theorem_4_1(run: TrainingRun) -> str | None:
    if not isinstance(run.domain, Ball) or not run.is_constant:
        return None
    D, sigma = quantities.diameter(run), float(np.max(run.noise_std))
    L, long = _one_gradient(run), _long_run(run)
    inside = _LEAST_DIAMETER * L <= D and sigma**2 * long <= _MOST_NOISE * D * D
    if inside and run.steps >= long and run.release_noise_std == 0.0:
        return None
    return f"D/(eta L) = {D / L:.4g}, {run.steps} steps for {long}"


BOUNDED_LOWER = LowerBound(
    id=f"{PAPER}/bounded-lower",
    gives="a walk in an interval, with random drift",
    covers=(SampledWithoutReplacement,),
    needs=(
        conditions.CONSTANT,
        conditions.NOISY,
        conditions.BOUNDED,
        conditions.MAY_BE_LINEAR,
        Hypothesis(
            "a domain, noise and number of steps in the theorem's range, no noise on release",
            _outside_theorem_4_1,
            "none: the constants are the paper's",
        ),
    ),
    source=cite("Theorem 4.1"),
    evaluate=sampled_bounded_lower_bound,
    gradients=lambda run: [Gradients(_one_gradient(run) / run.sensitivity, 0.0)],
)
LOWER_BOUNDS = (BOUNDED_LOWER,)
