r"""Chourasia, Ye and Shokri 2021: Renyi divergences of full-batch descent as a diffusion.

They add noise sqrt(2 eta) sigma_CYS to x, and S_g bounds the change of the *sum* of gradients:
sigma_CYS = sigma sqrt(eta/2), S_g = L and S_g^2/(sigma_CYS^2 n^2) = 2 r^2/eta with
r = L/(n sigma).  Their squared loss has curvature 1; with curvature m, eta m takes the place of
eta, since only that product enters.

`plan_for_epsilon` and `plan_for_renyi` say how long to train and with how much noise, for losses
that are M-smooth, m-strongly convex and L-Lipschitz, in d dimensions.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
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
from lastiterate.run.batch_rules.ordered import FullBatch
from lastiterate.run.loss import linear_gradients
from lastiterate.run.training_run import TrainingRun

PAPER = "published/chourasia-ye-shokri"
_BALANCES = np.linspace(0.5, 1.0, 201).tolist()


def cite(where: str) -> Citation:
    return Citation(
        "Chourasia, Ye and Shokri",
        2021,
        "Differential privacy dynamics of Langevin diffusion and noisy gradient descent",
        where,
    )


def linear(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of all iterates.

    **Bound.** :math:`R_\alpha \le \alpha r^2 T/2`.

    **Holds when.** every step sees every example and has the same noise.

    **Tight** for all iterates together.

    **Source.** Theorem 1.

    **Computed as** printed; rounded up.
    """
    return ZCDPProfile(
        up(sensitivity_over_noise(run) ** 2 * run.steps / 2.0, THOUSANDS_OF_ROUNDINGS)
    )


def log_sobolev(run: TrainingRun, *, constant: float, balance: float = 0.5) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate, from a log-Sobolev constant c of all iterates.

    :math:`R_\alpha \le \frac{\alpha S_g^2}{8\gamma(1-\gamma)c\sigma^4n^2}
    (1 - e^{-2(1-\gamma)\sigma^2c\eta K})`: Theorem 2 through (66), with :math:`\gamma = 1/2` in
    the theorem itself.  :math:`\gamma = 1` is their Theorem 1.

    Parameters
    ----------
    run : TrainingRun
        Full batches with constant step size and noise.
    constant : float
        c, in their convention: a Gaussian of variance v has 1/v.
    balance : float
        gamma in (0, 1], free to choose.

    Returns
    -------
    ZCDPProfile
        As certain as `constant`, which is taken on trust.

    Raises
    ------
    NoBoundApplies
        Where the run has no full batches, a schedule, or steps without noise.
    """
    LINEAR.profile(run)
    c = _check.number("constant", constant, above=0.0)
    gamma = _check.number("balance", balance, above=0.0, at_most=1.0)
    variance = float(np.max(run.noise_std)) ** 2 * float(np.max(run.step_size)) / 2.0
    return ZCDPProfile(_rate(run, 2.0 * variance * c * float(np.max(run.step_size)), gamma))


def _rate(run: TrainingRun, x: float, balance: float) -> float:
    r"""The right-hand side of (66) over the order, from x = 2 sigma^2 c eta and g = balance.

    It is r^2/(2 g (1 - g) x) (1 - e^{-(1-g) x K}).
    """
    rest = (1.0 - balance) * x
    grown = run.steps if rest == 0.0 else -math.expm1(-rest * run.steps) / rest
    rate = sensitivity_over_noise(run) ** 2 * grown / (2.0 * balance)
    return up(rate, THOUSANDS_OF_ROUNDINGS)


def balanced(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate on strongly convex losses, with the best balance.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \min_{0<\gamma\le1}
    \frac{1 - e^{-(1-\gamma)\eta\lambda T}}{2\gamma(1-\gamma)\eta\lambda}`: composition where
    :math:`\gamma = 1`, their Corollary 1 where :math:`\gamma = 1/2`.

    **Holds when.** losses are strongly convex and smooth and :math:`\eta < 1/\beta`, so that all
    iterates have the log-Sobolev constant of their Lemma 5 (from any fixed start).

    **Tight** to a factor of 2 in long runs, less in short ones.

    **Source.** (66) in the proof of Theorem 2, where they set :math:`\gamma = 1/2` at once.

    **Computed as** the least over some balances, which all are valid; rounded up.
    """
    x = constant_gap(run)
    return ZCDPProfile(min(_rate(run, x, balance) for balance in _BALANCES))


def strongly_convex(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate on strongly convex losses.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{\eta\lambda}
    (1 - e^{-\eta\lambda T/2})`.

    **Holds when.** losses are strongly convex and smooth and :math:`\eta \le 2/(\lambda+\beta)`.
    (They ask for eta < 1/beta and a Gaussian start; the shifts imply the statement without.)

    **Tight** to a factor of 2: in long runs it is twice the exact privacy of quadratics, which
    is itself up to twice their Theorem 3.

    **Source.** Theorem 2 and Corollary 1.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)
    rate = sensitivity_over_noise(run) ** 2 * (2.0 / x) * -math.expm1(-x * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def squared_loss(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate on losses that are all equally curved squares.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{x(2-x)}
    (1 - e^{-x(2-x)T/2})` with :math:`x = \eta m`.

    **Holds when.** smoothness = strong_convexity = m and x < 2.

    **Tight** to a factor of :math:`4/(2-x)^2 \le 4` in the limit of long runs, about 1 for small
    x, and of 2 in short ones.

    **Source.** Corollary 2.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)  # or 2 - eta m, which gives the same
    bend = x * (2.0 - x)
    rate = sensitivity_over_noise(run) ** 2 * (2.0 / bend) * -math.expm1(-bend * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def squared_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""A lower bound from full batches of quadratics.

    **Bound.** :math:`\mu = r\sqrt{(1 - e^{-xT})/x}`, :math:`x = \eta m`: their
    :math:`\frac{\alpha S_g^2}{4\sigma^2n^2}(1 - e^{-\eta K})` has curvature 1.

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


def plan_for_epsilon(
    description: TrainingRun, *, dimension: int, lipschitz: float, epsilon: float, delta: float
) -> tuple[TrainingRun, float]:
    r"""The run of Theorem 4 for (epsilon, delta), (72), on full batches, and its excess risk.

    sigma^2 = 8 L^2 (eps + 2 log(1/delta))/(m eps^2 n^2), eta = m/(2 M^2), K = log(..)/(eta m).
    Their risk is Lemma 6's, :math:`\frac{2ML^2}{m^2}e^{-m\eta K} + \frac{2Md\sigma^2}{m}`.
    """
    n, d, L = description.batches.examples, dimension, lipschitz
    log = math.log(1.0 / delta)
    strong = description.loss.strong_convexity
    variance = 8.0 * L * L * (epsilon + 2.0 * log) / (strong * epsilon**2 * n * n)
    return _run_of_theorem_4(description, d, L, variance, n * n * epsilon**2 / (4.0 * log * d))


def plan_for_renyi(
    description: TrainingRun, *, dimension: int, lipschitz: float, order: float, divergence: float
) -> tuple[TrainingRun, float]:
    r"""The run of Theorem 4 for a Renyi target, (71), on full batches, and its excess risk.

    sigma^2 = 4 alpha L^2/(m eps n^2), eta = m/(2 M^2), K = log(n^2 eps/(alpha d))/(eta m).

    Parameters
    ----------
    description : TrainingRun
        Full batches of a strongly convex and smooth loss; steps, step size and noise are replaced.
    dimension : int
        The number of parameters.
    lipschitz : float
        A bound on the gradients.
    order, divergence : float
        The target: the Renyi divergence of this order is to be at most `divergence`.

    Returns
    -------
    (TrainingRun, float)
        The run, and Lemma 6's bound on its expected excess risk.
    """
    alpha = _check.number("order", order, above=1.0)
    target = _check.number("divergence", divergence, above=0.0)
    n, d = description.batches.examples, _check.count("dimension", dimension, at_least=1)
    L = _check.number("lipschitz", lipschitz, above=0.0)
    variance = 4.0 * alpha * L * L / (description.loss.strong_convexity * target * n * n)
    return _run_of_theorem_4(description, d, L, variance, n * n * target / (alpha * d))


def _run_of_theorem_4(
    description: TrainingRun, d: int, L: float, variance: float, gain: float
) -> tuple[TrainingRun, float]:
    """The run with this noise and log(gain)/(eta m) steps, and the risk of Lemma 6."""
    M, m = description.loss.smoothness, description.loss.strong_convexity
    assert M is not None
    eta = m / (2.0 * M * M)
    steps = max(1, math.ceil(math.log(max(gain, math.e)) / (eta * m)))
    risk = 2.0 * M * L * L / (m * m) * math.exp(-m * eta * steps) + 2.0 * M * d * variance / m
    run = description.replace(
        steps=steps, step_size=eta, noise_std=math.sqrt(variance) * math.sqrt(2.0 / eta)
    )
    return run, risk


def _not_squared(run: TrainingRun) -> str | None:
    if run.loss.smoothness == run.loss.strong_convexity:
        return None
    return f"smoothness={run.loss.smoothness!r}, strong_convexity={run.loss.strong_convexity!r}"


def _not_below_smoothness(run: TrainingRun) -> str | None:
    if run.loss.smoothness is None:
        return None
    x = float(np.max(run.step_size)) * run.loss.smoothness
    return None if up(x, FEW_ROUNDINGS) < 1.0 else f"step_size smoothness = {x!r}"


def _long_step(run: TrainingRun) -> str | None:
    x = float(np.max(run.step_size)) * run.loss.strong_convexity
    return None if x < 1.0 else f"step_size strong_convexity = {x!r}"


_CONTRACTING = (*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX)
LINEAR = Bound(
    id=f"{PAPER}/linear",
    gives="Renyi divergences of all iterates",
    covers=(FullBatch,),
    needs=(conditions.CONSTANT, conditions.NOISY),
    certainty=Certainty.UPPER,
    source=cite("Theorem 1"),
    evaluate=linear,
)
BOUNDS = (
    LINEAR,
    Bound(
        id=f"{PAPER}/balanced",
        gives="Renyi divergences of the last iterate, between composition and convergence",
        covers=(FullBatch,),
        needs=(
            *_CONTRACTING,
            Hypothesis("step_size < 1/smoothness", _not_below_smoothness, "shorten the steps"),
        ),
        certainty=Certainty.UPPER,
        source=cite("(66)"),
        evaluate=balanced,
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
        gradients=linear_gradients,
        listed_only=True,  # lower/quadratic
    ),
)
