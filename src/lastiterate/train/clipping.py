r"""Clipping that leaves a convex loss.

Scaling a softmax residual down to a norm is *not* the gradient of a convex function with three
or more classes, and a step along it may drive two models apart.  The two clips here are
gradients of convex losses.  Logits and residuals have one row for each class and one column for
each example.

=====  ==============================================================
u      logits, (classes, examples)
y      labels, whole numbers below `classes`
p      softmax of u; the residual is p - e_y
c      the largest norm of a residual
=====  ==============================================================
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.exact import Array
from lastiterate.errors import NumericalFailure

Labels = NDArray[np.intp]

ENVELOPE_ERROR = 1e-12
_MOST_ROUNDS = 100
_FAR_UP = 0.5
_ROUNDING = 1e-14  # of the residual that the error is computed from, relative to 2 + s/2


def softmax_residual(u: Array, y: Labels) -> Array:
    """p - e_y."""
    residual: Array = u - u.max(axis=0)
    np.exp(residual, out=residual)
    residual /= residual.sum(axis=0)
    residual[y, np.arange(y.size)] -= 1.0
    return residual


def margin_clipped_residual(u: Array, y: Labels, c: float) -> Array:
    r"""(p - e_y) scaled by min(1, tau/(1 - p_y)) with :math:`\tau = c/\sqrt2`.

    The loss is h(s(u)), where :math:`s = \log\sum_{i \ne y} e^{u_i} - u_y` is convex and
    :math:`h' = \min(\mathrm{sigmoid}, \tau)` does not decrease: convex.  A residual of wrong mass
    m has norm at most :math:`\sqrt2 m`, so clipped ones have norm at most c.
    """
    residual = softmax_residual(u, y)
    wrong = -residual[y, np.arange(y.size)]
    tau = c * np.sqrt(0.5)
    residual *= np.minimum(1.0, tau / np.maximum(wrong, tau))
    return residual


def envelope_clipped_residual(u: Array, y: Labels, c: float) -> Array:
    r"""The gradient of :math:`\inf_v \ell(v) + c|u - v|`, for the softmax loss, to within 1e-12.

    An infimal convolution of convex functions: convex, c-Lipschitz, as smooth as the loss, and
    equal to it where |p - e_y| <= c.  Elsewhere the gradient is :math:`\tilde p - e_y`, where
    :math:`\tilde p` maximises :math:`\langle u, p\rangle + H(p)` over the distributions with
    :math:`|p - e_y| \le c`.

    Raises `NumericalFailure` where the error cannot be certified.
    """
    residual = softmax_residual(u, y)
    norms = np.sqrt(_product_sum(residual, residual))
    # Written so that nan is clipped, and fails there.
    clipped = np.flatnonzero(~(norms <= c))
    if clipped.size:
        labels = y[clipped]
        # The rows of the wrong classes only, for each column.
        wrong = np.arange(u.shape[0] - 1)[:, np.newaxis] + np.zeros_like(labels)
        wrong += wrong >= labels
        p = _on_the_sphere(u[wrong, clipped] - u[labels, clipped], c)
        residual[wrong, clipped] = p
        residual[labels, clipped] = -p.sum(axis=0)
    return residual


class _Point(NamedTuple):
    """Wrong-class probabilities with |p - e_y| = c exactly, their logarithms, and their mass."""

    log_p: Array
    p: Array
    mass: Array


def _on_the_sphere(v: Array, c: float) -> Array:
    r"""The wrong-class part of p~, for wrong logits less that of the label.

    With wrong mass m and multiplier s of the constraint,
    :math:`F_i = \log p_i + s(p_i + m) - \log(1 - m) - v_i = 0` for every wrong class.
    Newton's method in (log p, s); its matrix is diagonal but for two columns.  After every round
    p is scaled back onto the sphere, so that it is the exact solution for logits that are off
    by F; entropy being strongly concave, its error is at most |F|/(2 + s/2).
    """
    solution = np.empty_like(v)
    columns = np.arange(v.shape[1])
    point, s = _start(v, c)
    for _ in range(_MOST_ROUNDS):
        off = s * point.p
        off += point.log_p
        off -= v
        off += s * point.mass - np.log1p(-point.mass)
        error = np.sqrt(_product_sum(off, off)) / (2.0 + s / 2)
        left = np.flatnonzero(~(error <= ENVELOPE_ERROR - _ROUNDING))
        if left.size < 0.7 * error.size:
            solution[:, columns] = point.p
            if not left.size:
                return solution
            # `take` keeps rows contiguous, which indexing does not.
            v, off = (np.take(x, left, axis=1) for x in (v, off))
            point = _Point(*(np.take(x, left, axis=-1) for x in point))
            columns, s = columns[left], s[left]
        log_p, s = _newton(point, off, s)
        point = _scaled(log_p, c)
    raise NumericalFailure("the clipped softmax residual could not be certified to 1e-12")


def _start(v: Array, c: float) -> tuple[_Point, Array]:
    """The margin clip's answer, flattened as its own multiplier would flatten it."""
    point = _scaled(v - v.max(axis=0), c)
    s = _multiplier(point, v, c)
    flatter = point.log_p - np.log1p(s * point.p)
    point = _scaled(flatter, c)
    return point, _multiplier(point, v, c)


def _multiplier(point: _Point, v: Array, c: float) -> Array:
    """The s for which F, weighted by p, vanishes."""
    total = _product_sum(point.p, v - point.log_p) + point.mass * np.log1p(-point.mass)
    return np.maximum(total / (c * c), 1e-3)


def _newton(point: _Point, off: Array, s: Array) -> tuple[Array, Array]:
    log_p, p, mass = point
    slope = s * p
    slope += 1.0
    weight = p / slope
    total, off_total = weight.sum(axis=0), _product_sum(weight, off)
    weight *= p
    first, off_first = weight.sum(axis=0), _product_sum(weight, off)
    second = _product_sum(weight, p)
    # Two equations for the changes of mass and s: one defines the mass, the other keeps the norm.
    pull = s + 1.0 / (1.0 - mass)
    a, b = 1.0 + pull * total, first + mass * total
    d, e = mass - pull * first, -(second + mass * first)
    determinant = a * e - b * d
    mass_change = -(off_total * e + b * off_first) / determinant
    s_change = (a * off_first + d * off_total) / determinant

    change = p * s_change
    change += pull * mass_change + s_change * mass
    change += off
    change /= slope
    moved = log_p - change
    # Beyond p = 1/s the equation bends: going up far, step in p instead of in log p.
    if change.min() < -_FAR_UP:
        bend = -np.log(s)
        beyond = np.flatnonzero((moved > bend) & (change < -_FAR_UP))
        bent = log_p.ravel()[beyond] + np.log1p(-change.ravel()[beyond])
        floor = bend[beyond % bend.size]
        moved.ravel()[beyond] = np.minimum(np.maximum(bent, floor), 0.0)
    return moved, np.maximum(s + s_change, s / 10)


def _scaled(log_p: Array, c: float) -> _Point:
    p = np.exp(log_p)
    mass = p.sum(axis=0)
    factor = c / np.sqrt(mass * mass + _product_sum(p, p))
    p *= factor
    mass *= factor
    return _Point(log_p + np.log(factor), p, mass)


def _product_sum(x: Array, y: Array) -> Array:
    sums: Array = np.einsum("ij,ij->j", x, y)
    return sums
