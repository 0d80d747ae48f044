r"""Chourasia, Ye and Shokri 2021: Renyi divergences of full-batch descent as a diffusion.

They add noise sqrt(2 eta) sigma_CYS to x, and S_g bounds the change of the *sum* of gradients:
sigma_CYS = sigma sqrt(eta/2), S_g = L and S_g^2/(sigma_CYS^2 n^2) = 2 r^2/eta with
r = L/(n sigma).  Their squared loss has curvature 1; with curvature m, eta m takes the place of
eta, since only that product enters.
"""

import math

import numpy as np

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    down,
    up,
)
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis, LowerBound
from lastiterate.bounds.quantities import constant_gap, sensitivity_over_noise
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.profile.renyi import ZCDPProfile
from lastiterate.run.batch_rules.rules import FullBatch
from lastiterate.run.training_run import TrainingRun

PAPER = "published/chourasia-ye-shokri"


def cite(where: str) -> Citation:
    return Citation(
        "Chourasia, Ye and Shokri",
        2021,
        "Differential privacy dynamics of Langevin diffusion and noisy gradient descent",
        where,
    )


def linear(run: TrainingRun) -> ZCDPProfile:
    r"""All iterates.

    **Bound.** :math:`R_\alpha \le \alpha r^2 T/2`.

    **Holds when.** every step sees every example and has the same noise.

    **Tight** for all iterates together.

    **Source.** Theorem 1.

    **Computed as** printed; rounded up.
    """
    return ZCDPProfile(
        up(sensitivity_over_noise(run) ** 2 * run.steps / 2.0, THOUSANDS_OF_ROUNDINGS)
    )


def strongly_convex(run: TrainingRun) -> ZCDPProfile:
    r"""The last iterate on strongly convex losses.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{\eta\lambda}
    (1 - e^{-\eta\lambda T/2})`.

    **Holds when.** losses are strongly convex and smooth and :math:`\eta \le 2/(\lambda+\beta)`.
    (They ask for eta < 1/beta and a Gaussian start; the shifts imply the statement without.)

    **Tight** to a factor of about 4 (their Theorem 3 has a quarter of the limit).

    **Source.** Theorem 2 and Corollary 1.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)
    rate = sensitivity_over_noise(run) ** 2 * (2.0 / x) * -math.expm1(-x * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def squared_loss(run: TrainingRun) -> ZCDPProfile:
    r"""The last iterate on losses that are all equally curved squares.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{x(2-x)}
    (1 - e^{-x(2-x)T/2})` with :math:`x = \eta m`.

    **Holds when.** smoothness = strong_convexity = m and x < 2.

    **Tight** to a factor of about 4.

    **Source.** Corollary 2.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)  # or 2 - eta m, which gives the same
    bend = x * (2.0 - x)
    rate = sensitivity_over_noise(run) ** 2 * (2.0 / bend) * -math.expm1(-bend * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def squared_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""Full batches of quadratics.

    **Bound.** :math:`\mu = r\sqrt{(1 - e^{-xT})/x}`, :math:`x = \eta m`: their
    :math:`\frac{\alpha S_g^2}{4\sigma^2n^2}(1 - e^{-\eta K})` has curvature 1, and n^2
    where eta^2 is printed.

    **Holds when.** quadratics of curvature m obey the description, x < 1, the domain is
    unbounded.

    **Tight.** Below the exact :math:`\frac{2-x}{1+(1-x)^T}\cdot\frac{1-(1-x)^T}{x}`.

    **Source.** Theorem 3.

    **Computed as** printed; rounded down.
    """
    x = float(np.max(run.step_size)) * run.loss.strong_convexity
    square = -math.expm1(-x * run.steps) / x
    return MeansLowerProfile(
        [1.0], [down(sensitivity_over_noise(run) * math.sqrt(square), MILLIONS_OF_ROUNDINGS)]
    )


def planned(
    description: TrainingRun, *, dimension: int, lipschitz: float, epsilon: float, delta: float
) -> tuple[TrainingRun, float]:
    r"""Theorem 4: the run for a target, on full batches, and its excess risk.

    sigma^2 = 8 L^2 (eps + 2 log(1/delta))/(m eps^2 n^2), eta = m/(2 M^2), K = log(..)/(eta m).
    Their risk is Lemma 6's, :math:`\frac{2ML^2}{m^2}e^{-m\eta K} + \frac{2Md\sigma^2}{m}`.
    """
    loss, n, d, L = description.loss, description.batches.examples, dimension, lipschitz
    M, m = loss.smoothness, loss.strong_convexity
    assert M is not None
    eta, log = m / (2.0 * M * M), math.log(1.0 / delta)
    variance = 8.0 * L * L * (epsilon + 2.0 * log) / (m * epsilon**2 * n * n)
    length = 2.0 * M * M / (m * m) * math.log(max(n * n * epsilon**2 / (4.0 * log * d), math.e))
    steps = max(1, math.ceil(length))
    risk = 2.0 * M * L * L / (m * m) * math.exp(-m * eta * steps) + 2.0 * M * d * variance / m
    run = description.replace(
        steps=steps, step_size=eta, noise_std=math.sqrt(variance) * math.sqrt(2.0 / eta)
    )
    return run, risk


def _not_squared(run: TrainingRun) -> str | None:
    if run.loss.smoothness == run.loss.strong_convexity:
        return None
    return f"smoothness={run.loss.smoothness!r}, strong_convexity={run.loss.strong_convexity!r}"


def _long_step(run: TrainingRun) -> str | None:
    x = float(np.max(run.step_size)) * run.loss.strong_convexity
    return None if x < 1.0 else f"step_size strong_convexity = {x!r}"


_CONTRACTING = (*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX)

BOUNDS = (
    Bound(
        id=f"{PAPER}/linear",
        gives="Renyi divergences of all iterates",
        covers=(FullBatch,),
        needs=(conditions.CONSTANT, conditions.NOISY),
        certainty=Certainty.UPPER,
        source=cite("Theorem 1"),
        evaluate=linear,
    ),
    Bound(
        id=f"{PAPER}/strongly-convex",
        gives="Renyi divergences of the last iterate that converge",
        covers=(FullBatch,),
        needs=(*_CONTRACTING, conditions.BEST_STEP_AT_MOST),
        certainty=Certainty.UPPER,
        source=cite("Theorem 2 and Corollary 1"),
        evaluate=strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/squared-loss",
        gives="Renyi divergences of the last iterate for squared losses",
        covers=(FullBatch,),
        needs=(
            *_CONTRACTING,
            Hypothesis(
                "smoothness equal to strong_convexity",
                _not_squared,
                "see published/chourasia-ye-shokri/strongly-convex",
            ),
        ),
        certainty=Certainty.UPPER,
        source=cite("Corollary 2"),
        evaluate=squared_loss,
    ),
)

LOWER_BOUNDS = (
    LowerBound(
        id=f"{PAPER}/squared-lower",
        gives="nearly the exact privacy of squared losses",
        covers=(FullBatch,),
        needs=(
            *conditions.SQUARES,
            Hypothesis("step_size strong_convexity < 1", _long_step, "shorten"),
        ),
        source=cite("Theorem 3"),
        evaluate=squared_lower_bound,
    ),
)
