"""The papers' symbols, converted once into this library's.

Here `noise_std` is on the averaged gradient, before the step size, and `sensitivity` is
the largest difference of two examples' gradients.  Each function takes a paper's own
symbols and returns the two as keyword arguments of `TrainingRun`.

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

import math
from typing import TypedDict

from lastiterate import _check


class NoiseAndSensitivity(TypedDict):
    """Keyword arguments of `TrainingRun`."""

    noise_std: float
    sensitivity: float


def bok_su_altschuler(*, sigma: float, L: float) -> NoiseAndSensitivity:
    """This library's own convention."""
    return _converted(_positive("sigma", sigma), _positive("L", L))


def altschuler_talwar(*, sigma: float, L: float) -> NoiseAndSensitivity:
    """L is a Lipschitz constant: two gradients differ by up to 2 L."""
    return _converted(_positive("sigma", sigma), 2.0 * _positive("L", L))


def ye_shokri(*, sigma: float, S_g: float, step_size: float) -> NoiseAndSensitivity:
    """Langevin noise sqrt(2 eta) sigma; S_g bounds the change of a *sum* of gradients.

    >>> ye_shokri(sigma=0.5, S_g=4.0, step_size=0.5)
    {'noise_std': 1.0, 'sensitivity': 4.0}
    """
    eta = _positive("step_size", step_size)
    return _converted(_positive("sigma", sigma) * math.sqrt(2.0 / eta), _positive("S_g", S_g))


chourasia_ye_shokri = ye_shokri


def chien_li(*, sigma: float, K: float, step_size: float) -> NoiseAndSensitivity:
    """Noise is added to the parameters; K is the norm every gradient is clipped to."""
    eta = _positive("step_size", step_size)
    return _converted(_positive("sigma", sigma) / eta, 2.0 * _positive("K", K))


def _converted(noise_std: float, sensitivity: float) -> NoiseAndSensitivity:
    return {"noise_std": noise_std, "sensitivity": sensitivity}


def _positive(name: str, value: float) -> float:
    return _check.number(name, value, above=0.0)
