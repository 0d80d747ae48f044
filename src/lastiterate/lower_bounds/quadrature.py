r"""Gauss-Legendre panels, and how far off they can be.

**Bound.** If f is analytic in the Bernstein ellipse of parameter :math:`\varrho` about a panel and
at most K there, its Chebyshev series cut after degree d is off by at most
:math:`2K\varrho^{-d}/(\varrho - 1)`.  Quadrature with n nodes is exact for degree 2n - 1 and has
weights of sum 2, so it is off by at most :math:`8K\varrho^{1-2n}/(\varrho-1)` half lengths;
interpolation in the nodes by at most :math:`1 + \Lambda` times the cut of degree n - 1, where
:math:`\Lambda \le 2\sqrt n` is the Lebesgue constant.

**Holds when.** f is a density of a Gaussian mixture of standard deviation s, or that times the
Gaussian density of the next step, whose mean is linear on the panel: both are entire, and

.. math:: |\varphi_s(x + i\tau - u)| = e^{\tau^2/2s^2} \varphi_s(x - u).

**Computed as** the least over :math:`\varrho`; a mixture's density is at most
:math:`1/(s\sqrt{2\pi})`.
"""

from functools import cache

import numpy as np

from lastiterate._numerics.rounding import Array

NODES = 16
_RHO = np.geomspace(1.2, 200.0, 400)
_REAL, _IMAGINARY = (_RHO + 1.0 / _RHO) / 2.0, (_RHO - 1.0 / _RHO) / 2.0
_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))


@cache
def rule() -> tuple[Array, Array]:
    """Nodes and weights on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return nodes, weights


@cache
def to_legendre() -> Array:
    """The matrix from values at the nodes to Legendre coefficients."""
    return np.asarray(np.linalg.inv(np.polynomial.legendre.legvander(rule()[0], NODES - 1)))


def nodes_of(edges: Array) -> tuple[Array, Array]:
    """The nodes of every panel (a row each), and their weights."""
    nodes, weights = rule()
    half = np.diff(edges)[:, None] / 2.0
    return edges[:-1, None] + half * (nodes + 1.0), half * weights


def panels(low: float, high: float, longest: float, cuts: tuple[float, ...]) -> Array:
    """Edges of panels that cover [low, high], on a lattice, and split at the cuts."""
    first, last = np.floor(low / longest), np.ceil(high / longest)
    lattice = longest * np.arange(first, last + 1.0)
    return np.unique(np.concatenate([lattice, [x for x in cuts if lattice[0] < x < lattice[-1]]]))


def integration_error(edges: Array, std: float, next_std: float, slope: float) -> float:
    """How far off, in total mass, the next law is when this one is summed over its nodes."""
    half = float(np.diff(edges).max()) / 2.0
    height, spread = _IMAGINARY * half, 2.0 * slope * _REAL * half
    exponent = (height / std) ** 2 / 2.0 + (slope * height / next_std) ** 2 / 2.0
    logs = exponent + (1 - 2 * NODES) * np.log(_RHO) + np.log(8.0 / (_RHO - 1.0))
    with np.errstate(over="ignore"):
        each = np.exp(logs) * (1.0 + spread / (next_std * _ROOT_TWO_PI))
    return float(each.min() * (edges[-1] - edges[0]) / 2.0 / (std * _ROOT_TWO_PI))


def interpolation_error(edges: Array, std: float) -> float:
    """How far off, in total mass, the interpolants of a density may be."""
    half = float(np.diff(edges).max()) / 2.0
    exponent = (_IMAGINARY * half / std) ** 2 / 2.0
    logs = exponent + (1 - NODES) * np.log(_RHO) + np.log(2.0 / (_RHO - 1.0))
    with np.errstate(over="ignore"):
        least = float(np.exp(logs).min())
    lebesgue = 1.0 + 2.0 * np.sqrt(NODES)
    return float(lebesgue * least * (edges[-1] - edges[0]) / (std * _ROOT_TWO_PI))
