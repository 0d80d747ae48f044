r"""Formulas that are false as printed, for the errata and nothing else.

Both print the sampled Gaussian's divergence as :math:`D_\alpha(N(0) \| (1-q)N(0) + qN(1))`, which
is the smaller of the two directions.
"""

import math

import numpy as np

from lastiterate.errors import NumericalFailure


def smaller_direction(order: float, q: float, noise: float) -> float:
    """The divergence S_alpha as printed (Altschuler and Talwar 2.10, Chien and Li 3.11)."""
    return _divergence(order, q, noise, mixture_first=False)


def larger_direction(order: float, q: float, noise: float) -> float:
    """The other direction, which a one-step run attains."""
    return _divergence(order, q, noise, mixture_first=True)


def _divergence(order: float, q: float, noise: float, *, mixture_first: bool) -> float:
    reach = 1.0 + order + 14.0 * noise * math.sqrt(1.0 + order)
    x, step = np.linspace(-reach, reach, 200_001, retstep=True)
    zero = -0.5 * (x / noise) ** 2
    one = -0.5 * ((x - 1.0) / noise) ** 2
    mixed = np.logaddexp(math.log1p(-q) + zero, math.log(q) + one)
    p, r = (mixed, zero) if mixture_first else (zero, mixed)
    logs = order * p + (1.0 - order) * r
    top = float(logs.max())
    total = top + math.log(float(np.exp(logs - top).sum() * step))
    value = (total - math.log(noise * math.sqrt(2.0 * math.pi))) / (order - 1.0)
    if not math.isfinite(value):
        raise NumericalFailure(f"no divergence of order {order}, q = {q}, noise {noise}")
    return value


def altschuler_talwar_3_6(
    order: float, *, T: int, D: float, L: float, b: int, n: int, eta: float, sigma: float
) -> float:
    """The value of (3.6), which is false, the least over tau and the split of the noise."""
    best = math.inf
    for share in 1.0 / (1.0 + np.exp(-np.linspace(-8.0, 8.0, 65))):
        one = smaller_direction(order, b / n, b * sigma * math.sqrt(share) / (2.0 * L))
        R = np.arange(1, T + 1)
        rest = order * D * D / (2.0 * (eta * sigma) ** 2 * (1.0 - share) * R)
        best = min(best, float(np.min(R * one + rest)))
    return best


def chien_li_3_12_one_step(order: float, *, q: float, shift: float) -> float:
    """The value of (19) at T = 1, which is false; shift = 2 eta K/(b sigma)."""
    return smaller_direction(order, q, 1.0 / shift)


def ye_shokri_footnote_4(order: float, divergences: np.ndarray) -> float:
    """The sum epsilon_1 + log mean e^{(alpha-1)(epsilon_j - epsilon_1)}: it lacks 1/(alpha - 1)."""
    top = float(divergences.max())
    return top + math.log(float(np.mean(np.exp((order - 1.0) * (divergences - top)))))
