r"""Renyi divergence of one step on a sampled batch.

.. math:: \max\{D_\alpha(P \| Q), D_\alpha(Q \| P)\}, \quad Q = N(0, z^2),
          \quad P = (1-q) N(0, z^2) + q N(1, z^2),

z the noise in units of the shift.  The larger is D(P||Q) (Mironov, Talwar and Zhang 2019,
Theorem 5); two of the papers print the other.
"""

import math
from functools import lru_cache

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate._numerics.search import last_true
from lastiterate.profile.pld import sampled_gaussian_divergences
from lastiterate.run.training_run import TrainingRun

# Shares of a step's noise that the papers' bounds for sampled batches try.
NOISE_SPLITS = 1.0 / (1.0 + np.exp(-np.linspace(-7.0, 7.0, 43)))
_KNOWN_ORDERS = np.append(
    np.arange(1.0, 25.0), [28.0, 32.0, 40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0]
)


def sampled_gaussian(q: float, noise: float, orders: Array) -> Array:
    """The divergence at each order, rounded up; inf beyond the largest order that is known.

    `dp_accounting` sums a finite series for whole orders (for others an infinite one that may
    fail); (alpha - 1) D is convex in alpha and 0 at 1, so chords lie above it.
    """
    if q == 1.0:
        return up(orders / (2.0 * noise * noise), MILLIONS_OF_ROUNDINGS)
    chords = np.interp(orders, _KNOWN_ORDERS, _moments(q, noise), right=np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(orders > 1.0, chords / (orders - 1.0), _moments(q, noise)[1])


@lru_cache(maxsize=256)
def _moments(q: float, noise: float) -> Array:
    """(alpha - 1) D at the known orders; inf where `dp_accounting` fails."""
    values = sampled_gaussian_divergences(q, noise, _KNOWN_ORDERS[1:])
    found = np.where(values >= 0.0, up(values, MILLIONS_OF_ROUNDINGS), np.inf)
    return np.append(0.0, found * (_KNOWN_ORDERS[1:] - 1.0))


def largest_order(q: float, noise: float) -> float:
    r"""The largest order that Lemma 2.12 of Altschuler and Talwar covers; 1 if none.

    It is the largest :math:`\alpha` with :math:`\alpha \le Mz^2/2 - \log z^2` and
    :math:`\alpha \le (M^2z^2/2 - \log 5z^2)/(M + \log q\alpha + 1/(2z^2))`, where
    :math:`M = \log(1 + 1/(q(\alpha - 1)))`.

    >>> round(largest_order(0.01, 10.0), 1)
    50.6
    """

    def covered(order: float) -> bool:
        M, square = math.log1p(1.0 / (q * (order - 1.0))), noise * noise
        first = M * square / 2.0 - math.log(square)
        second = (M * M * square / 2.0 - math.log(5.0 * square)) / (
            M + math.log(q * order) + 0.5 / square
        )
        return order <= min(first, second)

    grid = 1.0 + np.geomspace(1e-6, 1e9, 601)
    held = [k for k, order in enumerate(grid.tolist()) if covered(order)]
    if not held:
        return 1.0
    if held[-1] == grid.size - 1:
        return float(grid[-1])
    return last_true(covered, float(grid[held[-1]]), float(grid[held[-1] + 1]))


def quadratic_bound(q: float, noise: float, order: float) -> float:
    r"""The bound :math:`2\alpha q^2/z^2` of Lemma 2.12; inf where the lemma does not apply.

    It needs q < 1/5, z >= 4 and an order of at most `largest_order`.  (Mironov, Talwar and Zhang
    2019, Theorem 11, prove it for the larger direction.)

    >>> round(quadratic_bound(0.01, 10.0, 4.0), 9)
    8e-06
    """
    if not (0.0 < q < 0.2 and noise >= 4.0 and 1.0 < order <= largest_order(q, noise)):
        return math.inf
    return up(2.0 * order * (q / noise) ** 2, FEW_ROUNDINGS)


def doubled_radius(run: TrainingRun) -> float:
    """2 C for the least ball of radius C that is known to hold every example's gradient.

    Gradients that differ by at most L lie in one of radius L/sqrt(2) (Jung), wherever its
    centre is.  Where an example may be left out, 0 is among them and L bounds them all.
    """
    bound = run.gradient_bound
    doubled = math.inf if bound is None else 2.0 * bound
    pairwise = 2.0 if run.adjacency == "zero-out" else up(math.sqrt(2.0), FEW_ROUNDINGS)
    return min(doubled, pairwise * run.sensitivity)
