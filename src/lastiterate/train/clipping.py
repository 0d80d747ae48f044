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

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled import compiled
from lastiterate.train.envelope import CERTIFIED, clipped_wrong_part

Labels = NDArray[np.intp]


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
    r"""The gradient of :math:`\inf_v \ell(v) + c|u - v|`, for the softmax loss, to within 1e-11.

    An infimal convolution of convex functions: convex, c-Lipschitz, as smooth as the loss, and
    equal to it where |p - e_y| <= c.
    """
    fast = compiled("envelope", u.size)
    if fast is None:
        return _clipped(u, y, c)
    residual, left = fast.clipped(u, y, c, CERTIFIED)
    if left.size:
        residual[:, left] = _clipped(u[:, left], y[left], c)
    return np.asarray(residual)


def _clipped(u: Array, y: Labels, c: float) -> Array:
    # The label's row changes places with the first, so that the others are the wrong classes.
    own = y * y.size + np.arange(y.size)
    logits: Array = np.subtract(u, u.ravel()[own], order="C")
    flat = logits.reshape(-1)
    flat[own] = logits[0]
    logits[1:] = clipped_wrong_part(logits[1:], c)
    wrong = logits[1:].sum(axis=0)
    logits[0] = flat[own]
    flat[own] = -wrong
    return logits
