r"""Estimates, never bounds, for sampled batches from central limit theorems.

Bok, Su and Altschuler 2024.  r = L/(b sigma), p = b/n; G(mu, p)^T of a step with ratio mu tends to
a Gaussian of :math:`\sqrt2\,p\sqrt{T\,v(\mu)}`, :math:`v(\mu) = e^{\mu^2}\Phi(3\mu/2) +
3\Phi(-\mu/2) - 2`.
"""

import math

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.powers import log_of, logs_of_powers
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Approximation, Estimate
from lastiterate.bounds.published.bok_su_altschuler.paper import PAPER, cite
from lastiterate.bounds.quantities import constant_gap, sensitivity_over_noise
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun


def growth(mu: float) -> float:
    """The function v(mu), about mu^2 where that is small, without cancelling."""
    if mu > 25.0:
        return math.inf
    # 3 Phi(-mu/2) - 2 as 3 (Phi(-mu/2) - 1/2) - 1/2, and error functions for the differences.
    bent = math.erf(1.5 * mu * math.sqrt(0.5)) - 3.0 * math.erf(0.5 * mu * math.sqrt(0.5))
    return math.expm1(mu * mu) * float(ndtr(1.5 * mu)) + bent / 2.0


def limit(mu: float, probability: float, steps: float) -> float:
    """The Gaussian parameter to which so many steps of ratio mu tend."""
    return math.sqrt(2.0 * steps * growth(mu)) * probability


def composition_estimate(run: TrainingRun) -> Estimate:
    """An estimate for all iterates: Lemma A.5, as in the last column of their Table 3."""
    return Estimate(limit(sensitivity_over_noise(run), run.batches.share, run.steps))


def strongly_convex_estimate(run: TrainingRun) -> Estimate:
    """An estimate for strongly convex descent: Proposition C.14, the best R = t - tau."""
    share, r = run.batches.share, sensitivity_over_noise(run)
    gap = constant_gap(run)
    R = np.arange(1.0, min(run.steps, 1_000_000) + 1)
    carried = r * np.exp(logs_of_powers(log_of(gap), R + 1.0)) / gap
    squares = 8.0 * carried**2 + 2.0 * share**2 * R * growth(2.0 * r)
    return Estimate(math.sqrt(float(squares.min())))


def bounded_estimate(run: TrainingRun) -> Estimate:
    """The estimate of mu on a bounded domain by Proposition C.15, with the best R = t - tau."""
    share, r = run.batches.share, sensitivity_over_noise(run)
    far = quantities.diameter(run) / float(np.max(run.noise_std))  # D/(eta sigma)
    spread = 2.0 * share**2 * growth(2.0 * math.sqrt(2.0) * r)
    best = math.sqrt(2.0) * far / math.sqrt(spread) if 0.0 < spread < math.inf else 1.0
    choices = {min(max(1.0, f(min(best, run.steps))), run.steps) for f in (math.floor, math.ceil)}
    return Estimate(math.sqrt(min(2.0 * far**2 / R + spread * R for R in choices)))


_SAMPLED = (SampledWithoutReplacement,)

APPROXIMATIONS = (
    Approximation(
        id=f"{PAPER}/sampled-composition-estimate",
        gives="an approximate mu for all iterates",
        covers=_SAMPLED,
        needs=(conditions.CONSTANT, conditions.NOISY),
        source=cite("Lemma A.5"),
        evaluate=composition_estimate,
    ),
    Approximation(
        id=f"{PAPER}/sampled-estimate",
        gives="an approximate mu for the last iterate",
        covers=_SAMPLED,
        needs=(*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX),
        source=cite("Proposition C.14"),
        evaluate=strongly_convex_estimate,
    ),
    Approximation(
        id=f"{PAPER}/sampled-bounded-estimate",
        gives="an approximate mu for the last iterate",
        covers=_SAMPLED,
        needs=(*conditions.GRADIENT_STEPS, conditions.BOUNDED),
        source=cite("Proposition C.15"),
        evaluate=bounded_estimate,
    ),
)
