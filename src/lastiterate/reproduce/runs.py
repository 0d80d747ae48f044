"""The runs that the papers' tables and figures are about.

The papers' symbols are converted once into this library's.  Here `noise_std` is on the averaged
gradient, before the step size, and `sensitivity` is the largest difference of two examples'
gradients.  Each function takes a paper's own symbols and returns the two as keyword arguments of
`TrainingRun`.

=====================  =========================================  ========================
paper                  noise it adds to x                         its symbol for the loss
=====================  =========================================  ========================
Bok, Su, Altschuler    step_size * N(0, sigma^2)                  gradient sensitivity L
Altschuler, Talwar     step_size * N(0, sigma^2)                  Lipschitz constant L
Ye, Shokri; Chourasia  sqrt(2 step_size sigma^2) * N(0, 1)        S_g, of a sum of gradients
Chien, Li              N(0, sigma^2)                              clip norm K
DP-SGD libraries       step_size * N(0, (z C / b)^2)              clip norm C
=====================  =========================================  ========================
"""

from __future__ import annotations

import math
from typing import TypedDict

from lastiterate import _check
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import Ball, Domain, TrainingRun, Unbounded


def mnist(epochs: int, regulariser: float, batches: BatchRule | None = None) -> TrainingRun:
    """The run of Bok, Su and Altschuler's logistic regression, as if its steps contracted."""
    return TrainingRun(
        loss=Loss(smoothness=32.5 + regulariser, strong_convexity=regulariser),
        sensitivity=10.0,
        batches=batches or Cyclic(60_000, 1_500),
        steps=40 * epochs,
        step_size=0.05,
        noise_std=0.01,
    )


def contracting(
    *,
    contraction: float,
    steps: int,
    ratio: float,
    batches: int = 1,
    noise_std: float = 1.0,
    step_size: float = 1.0,
    domain: Domain | None = None,
) -> TrainingRun:
    """Quadratics whose steps contract by c, with L/(b sigma) = ratio."""
    curvature = (1.0 - contraction) / step_size
    return TrainingRun(
        loss=Loss(smoothness=curvature, strong_convexity=curvature),
        sensitivity=ratio * noise_std,
        batches=FullBatch(1) if batches == 1 else Cyclic(batches, 1),
        steps=steps,
        step_size=step_size,
        noise_std=noise_std,
        domain=domain or Unbounded(),
    )


def ye_shokri_example(epochs: int, rule: type[Cyclic]) -> TrainingRun:
    """The run of Figures 1 and 2 of Ye and Shokri; `rule` is the kind of batches."""
    return TrainingRun(
        loss=Loss(smoothness=4.0, strong_convexity=1.0),
        **ye_shokri(sigma=2.0, S_g=4.0, step_size=0.02),
        batches=rule(50, 2),
        steps=25 * epochs,
        step_size=0.02,
    )


def chourasia_example(steps: int) -> TrainingRun:
    """The run of Figure 2 of Chourasia, Ye and Shokri."""
    return TrainingRun(
        loss=Loss(smoothness=1.0, strong_convexity=1.0),
        **chourasia_ye_shokri(sigma=0.02, S_g=4.0, step_size=0.02),
        batches=FullBatch(5000),
        steps=steps,
        step_size=0.02,
    )


def chien_li_example(steps: int, loss: Loss) -> TrainingRun:
    """The run of Figures 1 and 2(a) of Chien and Li."""
    return TrainingRun(
        loss=loss,
        **chien_li(sigma=1.0, K=2.0, step_size=0.1),
        batches=FullBatch(5),
        steps=steps,
        step_size=0.1,
        domain=Ball(1.0),
    )


class NoiseAndSensitivity(TypedDict):
    """Keyword arguments of `TrainingRun`."""

    noise_std: float
    sensitivity: float


def bok_su_altschuler(*, sigma: float, L: float) -> NoiseAndSensitivity:
    """This library's own convention."""
    return _noise_and_sensitivity(_positive("sigma", sigma), _positive("L", L))


def altschuler_talwar(*, sigma: float, L: float) -> NoiseAndSensitivity:
    """L is a Lipschitz constant: two gradients differ by up to 2 L."""
    return _noise_and_sensitivity(_positive("sigma", sigma), 2.0 * _positive("L", L))


def ye_shokri(*, sigma: float, S_g: float, step_size: float) -> NoiseAndSensitivity:
    """Langevin noise sqrt(2 eta) sigma; S_g bounds the change of a *sum* of gradients.

    >>> ye_shokri(sigma=0.5, S_g=4.0, step_size=0.5)
    {'noise_std': 1.0, 'sensitivity': 4.0}
    """
    eta = _positive("step_size", step_size)
    return _noise_and_sensitivity(
        _positive("sigma", sigma) * math.sqrt(2.0 / eta), _positive("S_g", S_g)
    )


chourasia_ye_shokri = ye_shokri


def chien_li(*, sigma: float, K: float, step_size: float) -> NoiseAndSensitivity:
    """Noise is added to the parameters; K is the norm every gradient is clipped to."""
    eta = _positive("step_size", step_size)
    return _noise_and_sensitivity(_positive("sigma", sigma) / eta, 2.0 * _positive("K", K))


def _noise_and_sensitivity(noise_std: float, sensitivity: float) -> NoiseAndSensitivity:
    return {"noise_std": noise_std, "sensitivity": sensitivity}


def _positive(name: str, value: float) -> float:
    return _check.number(name, value, above=0.0)
