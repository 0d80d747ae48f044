r"""Chourasia, Ye and Shokri 2021: how long to train and with how much noise, for a target.

Full batches of losses that are M-smooth, m-strongly convex and L-Lipschitz, in d dimensions.
"""

import math

from lastiterate import _check
from lastiterate.run.training_run import TrainingRun


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
