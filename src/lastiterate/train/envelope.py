r"""The clipped softmax residual that is the gradient of an envelope, solved for.

For logits u with label y, whose softmax residual is longer than c, the residual is
:math:`\tilde p - e_y`, where :math:`\tilde p` maximises :math:`\langle u, p\rangle + H(p)` over
the distributions with :math:`|p - e_y| \le c`.  Its wrong-class part p solves

.. math:: F_i = \log p_i + s p_i + B - v_i = 0, \quad B = sm - \log(1 - m), \quad
          m = \sum_i p_i, \quad m^2 + \sum_i p_i^2 = c^2.

=====  ====================================================================
v      wrong logits less that of the label, (classes - 1, examples)
p, m   wrong-class probabilities and their sum
s      multiplier of the constraint, positive
h      v - log p, which is what p is kept as: p itself may underflow
=====  ====================================================================

**Error.** A p on the sphere with some F is the exact solution for logits that are off by F; entropy
being strongly concave, its error is at most |F|/(2 + s/2).  Logits below -80 count as -80: the
solution's derivative in :math:`v_i` has norm at most :math:`\sqrt{p_i/2}`, and
:math:`p_i \le e^{v_i}`, so that moves p by at most :math:`\sqrt2 e^{-40}` a class.

**Certainty.** What is returned has been measured.  Newton's method, in float32 and then in float64,
meets the tolerance for logits as they occur; what it does not meet it for is solved by halving
intervals, since m falls with B, the norm with s.  Only where floats end (logits of 1e299, or
residuals longer than a clip below 1e-5 by no more than rounding) that may fail too, and raises.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from lastiterate._numerics.arrays import Array
from lastiterate.errors import NumericalFailure

TOLERANCE = 1e-11
_ROUNDING = 1e-14  # of F, relative to 2 + s/2
_LOWEST = -80.0
_TINY = 1e-36
_COARSE_ROUNDS = 2
_FINE_ROUNDS = 20
_FAR_UP = 0.5
_HALVINGS = 64

Columns = NDArray[np.intp]
Floats = NDArray[np.floating]


class _Guess(NamedTuple):
    h: Floats
    s: Floats


def wrong_class_part(v: Array, c: float) -> Array:
    """p for every column of `v`, to within `TOLERANCE`; `v` is overwritten."""
    np.maximum(v, _LOWEST, out=v)
    # A guess may overflow: it is judged by what comes of it.
    with np.errstate(all="ignore"):
        p, left = _quickly(v, c)
        for method in (_carefully, _halved):
            if left.size:
                found, failed = method(np.take(v, left, axis=1), c)
                p[:, left], left = found, left[failed]
    if left.size:
        raise NumericalFailure("the clipped softmax residual could not be certified")
    return p


def _quickly(v: Array, c: float) -> tuple[Array, Columns]:
    """p, and the columns in which it is not certified; in float32 to some six digits first."""
    return _refined(v, _approached(v, np.float32(c), rounds=_COARSE_ROUNDS), c)


def _carefully(v: Array, c: float) -> tuple[Array, Columns]:
    """As `_quickly`, all in float64."""
    return _refined(v, _approached(v, np.float64(c), rounds=0), c)


def _approached(v: Array, c: np.floating[Any], *, rounds: int) -> _Guess:
    """From the margin clip's answer, in the precision of c."""
    kind = c.dtype.type
    least = kind(1e-3)
    h = v.astype(kind)
    top = h.max(axis=0)
    p = np.exp(h - top)
    p += kind(_TINY)  # a logarithm will be taken
    m, factor = _put_on_sphere(p, c)
    common = top - np.log(factor)
    empty = np.log(1 - m)
    s = np.maximum(m * (common + empty) / (c * c), least)
    # p = W(y)/s for these s and B; W(y) is about z - z log(1 + z)/(2 + z) with z = log(1 + y).
    p *= s * np.exp(np.minimum(common + empty - s * m, 80))
    np.log1p(p, out=p)
    p *= 1 - np.log1p(p) / (2 + p)
    m, _ = _put_on_sphere(p, c)
    h -= np.log(p)
    s = np.maximum((_dot(p, h) + m * np.log(1 - m)) / (c * c), least)
    spare = np.empty((2, *p.shape), kind)
    for _ in range(rounds):
        m, s = _newton(p, h, m, s, c, spare)
        s = np.maximum(s, least)
    return _Guess(h, s)


def _refined(v: Array, guess: _Guess, c: float) -> tuple[Array, Columns]:
    h, s = (x.astype(np.float64) for x in guess)
    p = np.exp(v - h)
    solution, left = p, np.arange(s.size)
    spare = np.empty((2, *p.shape))
    for _ in range(_FINE_ROUNDS):
        s = np.asarray(_newton(p, h, p.sum(axis=0), s, c, spare)[1], dtype=np.float64)
        rest = _not_certified(p, h, s, c)
        if rest.size < left.size:
            if solution is not p:
                solution[:, left] = p
            p, h = np.take(p, rest, axis=1), np.take(h, rest, axis=1)
            s, left = s[rest], left[rest]
            spare = np.empty((2, *p.shape))
        if not left.size:
            break
    return solution, left


def _not_certified(p: Array, h: Array, s: Array, c: float) -> Columns:
    """Put p on the sphere, in place, and say in which columns it is not good enough."""
    m, factor = _put_on_sphere(p, c)
    h -= np.log(factor)
    off = p * s
    off -= h
    off += s * m - np.log1p(-m)
    return _too_far_off(off, s)


def _too_far_off(off: Array, s: Array) -> Columns:
    off /= 2.0 + s / 2
    # Written so that nan is not good enough.
    return np.flatnonzero(~(_dot(off, off) <= (TOLERANCE - _ROUNDING) ** 2))


def _halved(v: Array, c: float) -> tuple[Array, Columns]:
    """As `_quickly`, by halving an interval of log s, and for each s one of B less the top v."""
    count = v.shape[1]
    top = np.maximum(v.max(axis=0), 0.0)
    below = v - top
    spread = np.log(v.shape[0]) + 2.0
    low, high = np.full(count, -40.0), np.log(4.0 * (top + spread) / (c * c))
    for _ in range(_HALVINGS):
        log_s = (low + high) / 2
        s = np.exp(log_s)
        # As B >= 0, and as no p exceeds 1.
        least, most = np.maximum(-top, -s), s + spread
        for _ in range(_HALVINGS):
            beyond = (least + most) / 2
            p = wrightomega(below - beyond + log_s) / s
            m = p.sum(axis=0)
            small = (m >= 1.0) | (s * m - np.log1p(-m) - top > beyond)
            least, most = np.where(small, beyond, least), np.where(small, most, beyond)
        long = m * m + _dot(p, p) > c * c
        low, high = np.where(long, log_s, low), np.where(long, high, log_s)
    m, _ = _put_on_sphere(p, c)
    off = s * p + (s * m - np.log1p(-m)) - v + np.log(p)
    # Classes whose p has no logarithm in floats are as good as absent.
    return p, _too_far_off(np.where(p <= 1e-300, 0.0, off), s)


def _newton(
    p: Floats, h: Floats, m: Floats, s: Floats, c: Any, spare: Floats
) -> tuple[Floats, Floats]:
    r"""The new m and s; p and h are changed in place.

    The unknowns are log p and s.  With weights :math:`w = p/(1 + sp)` the step is
    :math:`\delta_i = (h_i - p_i s' - B')/(1 + sp_i)`, and two linear equations give the new s' and
    B': that m changes by :math:`\sum p\delta`, and that the point comes to lie on the sphere.
    """
    slope = np.multiply(p, s, out=spare[0])
    slope += 1
    weight = np.divide(p, slope, out=spare[1])
    squares, total, pull = _dot(p, p), weight.sum(axis=0), _dot(weight, h)
    weight *= p
    first, second, pull_first = weight.sum(axis=0), _dot(weight, p), _dot(weight, h)
    empty = 1 - m
    steep = s + 1 / empty
    by_total = 1 + steep * total
    by_first = m - steep * first
    offset = steep * pull - np.log(empty)
    cross = m * total + first
    missing = pull_first + m * pull - (c * c - m * m - squares) / 2
    new_s = (missing * by_total - cross * offset) / (
        (m * first + second) * by_total + cross * by_first
    )
    step = np.multiply(p, new_s, out=weight)
    np.subtract(h, step, out=step)
    step -= (offset + by_first * new_s) / by_total
    step /= slope
    if step.max() > _FAR_UP:
        _bend(step, p, s)
    h -= step
    np.exp(step, out=step)
    p *= step
    m = p.sum(axis=0)
    if not m.max() <= c + c * _FAR_UP:
        # Too far off the sphere for the next step to be of use.
        m, factor = _put_on_sphere(p, c)
        h -= np.log(factor)
    return m, np.maximum(new_s, s / 1000)


def _bend(step: Floats, p: Floats, s: Floats) -> None:
    """Beyond p = 1/s the equation bends: going up far, step in p instead of in log p."""
    with_s = p * s
    rows, columns = np.nonzero((step > _FAR_UP) & (np.log(with_s) + step > 0))
    from_bend = with_s[rows, columns]
    bent = np.maximum(np.log1p(step[rows, columns]), -np.log(from_bend))
    step[rows, columns] = np.minimum(bent, -np.log(p[rows, columns]))


def _put_on_sphere(p: Floats, c: Any) -> tuple[Floats, Floats]:
    """Scale p so that m^2 + |p|^2 = c^2; m, and the factor."""
    m = p.sum(axis=0)
    factor = c / np.sqrt(m * m + _dot(p, p))
    p *= factor
    return m * factor, factor


def _dot(x: Floats, y: Floats) -> Floats:
    sums: Floats = np.einsum("ij,ij->j", x, y)
    return sums
