r"""Renyi divergence of one step on a sampled batch.

.. math:: \max\{D_\alpha(P \| Q), D_\alpha(Q \| P)\}, \quad Q = N(0, z^2),
          \quad P = (1-q) N(0, z^2) + q N(1, z^2),

z the noise in units of the shift.  The larger is D(P||Q) (Mironov, Talwar and Zhang 2019,
Theorem 5); two of the papers print the other.
"""

import math
from functools import lru_cache

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.run.training_run import TrainingRun

_UP = 1.0 + 1e-9
_KNOWN = np.append(np.arange(1.0, 25.0), [28.0, 32.0, 40.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0])


def sampled_gaussian(q: float, noise: float, orders: Array) -> Array:
    """The divergence at each order, rounded up; inf beyond the largest order that is known.

    `dp_accounting` sums a finite series for whole orders (for others an infinite one that may
    fail); (alpha - 1) D is convex in alpha and 0 at 1, so chords lie above it.
    """
    if q == 1.0:
        return np.asarray(orders / (2.0 * noise * noise) * _UP)
    chords = np.interp(orders, _KNOWN, _moments(q, noise), right=np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(orders > 1.0, chords / (orders - 1.0), _moments(q, noise)[1])


@lru_cache(maxsize=256)
def _moments(q: float, noise: float) -> Array:
    """(alpha - 1) D at the known orders; inf where `dp_accounting` fails."""
    from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian

    with np.errstate(all="ignore"):
        values = np.asarray(_compute_rdp_poisson_subsampled_gaussian(q, noise, _KNOWN[1:]))
    found = np.where(values >= 0.0, values * _UP, np.inf)
    return np.append(0.0, found * (_KNOWN[1:] - 1.0))


def small_divergence(q: float, noise: float, order: float) -> float:
    """2 alpha q^2/z^2 for q < 1/5, z >= 4 and orders up to `largest_order`, else inf.

    Altschuler and Talwar 2022, Lemma 2.12; Mironov, Talwar and Zhang 2019, Theorem 11.
    """
    if not (q < 0.2 and noise >= 4.0 and 1.0 < order <= largest_order(q, noise)):
        return math.inf
    return 2.0 * order * q * q / (noise * noise) * _UP


def largest_order(q: float, noise: float) -> float:
    """alpha*: the largest order at which both conditions hold; 1 if at none.

    They fail for good once the second does: the largest is found by bisection, and what is
    returned was seen to satisfy both.
    """
    low, high = 1.0, 1.0 + 1e-6
    while _small(high, q, noise):
        low, high = high, 1.0 + 2.0 * (high - 1.0)
    for _ in range(100):
        middle = low + (high - low) / 2
        low, high = (middle, high) if _small(middle, q, noise) else (low, middle)
    return low


def _small(order: float, q: float, noise: float) -> bool:
    spread, growth = noise * noise, math.log1p(1.0 / (q * (order - 1.0)))
    below = growth + math.log(q * order) + 1.0 / (2.0 * spread)
    if order > growth * spread / 2.0 - math.log(spread):
        return False
    room = growth * growth * spread / 2.0 - math.log(5.0 * spread)
    return below <= 0.0 or order <= room / below


def doubled_radius(run: TrainingRun) -> float:
    """2 C for the least ball of radius C that is known to hold every example's gradient.

    Gradients that differ by at most L lie in one of radius L/sqrt(2) (Jung), wherever its
    centre is.  Where an example may be left out, 0 is among them and L bounds them all.
    """
    bound = run.gradient_bound
    doubled = math.inf if bound is None else 2.0 * bound
    pairwise = 2.0 if run.adjacency == "zero-out" else math.sqrt(2.0) * (1.0 + 1e-15)
    return min(doubled, pairwise * run.sensitivity)
