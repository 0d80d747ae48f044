r"""How long to train and with how much noise, for a target, with the excess risk to expect.

Full-batch descent on a mean of losses that are m-strongly convex and M-smooth, from a start at
distance R of the minimiser, which lies inside the domain.  A step contracts by c = 1 - eta m
where eta <= 2/(M + m), and its noise is independent, so

.. math:: E\,[F(x_T) - F^*] \le \tfrac M2 \Big(c^{2T} R^2
          + d\,\eta^2\sigma^2\, \frac{1 - c^{2T}}{1 - c^2}\Big).
"""

from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate._numerics.powers import log_of, power
from lastiterate.accounting import account
from lastiterate.bounds.published.chourasia_ye_shokri import plan_for_epsilon
from lastiterate.calibration import calibrate
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.ordered import FullBatch
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import Ball, TrainingRun

_STEP_SIZES = 12
_LENGTHS = 40


@dataclass(frozen=True)
class PublishedPlan:
    """The plan of Chourasia, Ye and Shokri 2021, Theorem 4, in this library's convention."""

    run: TrainingRun
    excess_risk: float


@dataclass(frozen=True)
class Plan:
    """A run that meets the target, and a bound on its expected excess risk.

    Parameters
    ----------
    run : TrainingRun
        The run.
    excess_risk : float
        The bound.
    published : PublishedPlan
        The plan of Chourasia, Ye and Shokri for the same target.

    Examples
    --------
    >>> from lastiterate import plan
    >>> found = plan(examples=1_000, dimension=2, lipschitz=1.0, smoothness=1.0,
    ...              strong_convexity=0.5, epsilon=1.0, delta=1e-5)
    >>> found.run.steps > 0, found.excess_risk < found.published.excess_risk
    (True, True)
    """

    run: TrainingRun
    excess_risk: float
    published: PublishedPlan


def plan(
    *,
    examples: int,
    dimension: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    epsilon: float,
    delta: float,
) -> Plan:
    """The step size, number of steps and noise with the least predicted excess risk.

    Parameters
    ----------
    examples : int
        How many there are.
    dimension : int
        The number of parameters.
    lipschitz : float
        A bound on the gradients of every example's loss, regulariser included, on the domain: a
        ball of diameter 2 lipschitz/strong_convexity, which strong convexity implies.  The
        minimiser is taken to lie inside it.
    smoothness : float
        Of every example's loss, regulariser included.
    strong_convexity : float
        The same.
    epsilon : float
        The target, together with `delta`.
    delta : float
        Of (epsilon, delta)-DP.

    Returns
    -------
    Plan
        The run, a bound on its expected excess risk, and the plan of a paper for comparison.

    Raises
    ------
    InvalidParameter, InvalidType
        If an argument is out of range.

    Examples
    --------
    >>> found = plan(examples=10_000, dimension=10, lipschitz=1.0, smoothness=1.0,
    ...              strong_convexity=0.1, epsilon=1.0, delta=1e-5)
    >>> found.excess_risk < found.published.excess_risk / 10
    True
    """
    n = _check.count("examples", examples, at_least=1)
    d = _check.count("dimension", dimension, at_least=1)
    L = _check.number("lipschitz", lipschitz, above=0.0)
    m = _check.number("strong_convexity", strong_convexity, above=0.0)
    M = _check.number("smoothness", smoothness, at_least=m)
    target = _check.target_epsilon("epsilon", epsilon)
    _check.number("delta", delta, above=0.0, below=1.0)
    description = TrainingRun(
        loss=Loss(smoothness=M, strong_convexity=m),
        sensitivity=2.0 * L,
        batches=FullBatch(n),
        steps=1,
        step_size=1.0 / M,
        noise_std=1.0,
        domain=Ball(2.0 * L / m),
    )
    theirs = plan_for_epsilon(description, dimension=d, lipschitz=L, epsilon=target, delta=delta)
    return Plan(*_best_run(description, d, target, delta), PublishedPlan(*theirs))


def excess_risk(run: TrainingRun, dimension: int) -> float:
    """The bound on the expected excess risk, from a start anywhere in the domain."""
    require_plain_steps(run, "a bound on the excess risk")
    if not isinstance(run.domain, Ball) or run.loss.smoothness is None or not run.is_constant:
        must_be = "a smooth run of constant steps on a bounded domain"
        raise InvalidParameter("run", run, must_be=must_be)
    eta, noise = float(np.max(run.step_size)), float(np.max(run.noise_std))
    gap = eta * run.loss.strong_convexity
    if not (gap > 0.0 and eta * (run.loss.smoothness + run.loss.strong_convexity) <= 2.0):
        must_be = "above 0 and at most 2/(smoothness + strong_convexity)"
        raise InvalidParameter("step_size", eta, must_be=must_be)
    kept = power(2.0 * log_of(gap), run.steps)
    spread = dimension * (eta * noise) ** 2 * (1.0 - kept) / (gap * (2.0 - gap))
    return run.loss.smoothness / 2.0 * (kept * run.domain.diameter**2 + spread)


def _best_run(
    description: TrainingRun, dimension: int, epsilon: float, delta: float
) -> tuple[TrainingRun, float]:
    loss = description.loss
    assert loss.smoothness is not None
    best: tuple[float, TrainingRun] | None = None
    # mu is inverse to the noise, so one calibration serves every length.
    unit = calibrate(description, epsilon=epsilon, delta=delta)
    allowed = account(unit).gdp()
    longest = 2.0 / (loss.smoothness + loss.strong_convexity)
    for eta in longest * np.geomspace(1e-3, 1.0, _STEP_SIZES):
        memory = 1.0 / (eta * loss.strong_convexity)
        for steps in np.unique(np.geomspace(1.0, 60.0 * memory + 1.0, _LENGTHS).astype(int)):
            run = description.replace(steps=int(steps), step_size=float(eta))
            run = run.replace(noise_std=account(run, bounds="fixed-order").gdp() / allowed)
            risk = excess_risk(run, dimension)
            if best is None or risk < best[0]:
                best = risk, run
    assert best is not None
    run = calibrate(best[1], epsilon=epsilon, delta=delta)
    return run, excess_risk(run, dimension)
