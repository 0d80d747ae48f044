"""One step of Newton's method for the envelope's equations, in the notation of `envelope`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

SMALL = 1e-3  # the norm of steps for which `grown` will do
_FAR_UP = 0.5


def newton(
    p: Floats, h: Floats, m: Floats, s: Floats, c: Any, spare: Floats, *, small: bool
) -> tuple[Floats, Floats, Any]:
    r"""The new m and s; p and h are changed in place.

    The unknowns are log p and s.  With weights :math:`w = p/(1 + sp)` the step is
    :math:`\delta_i = (h_i - p_i s' - B')/(1 + sp_i)`, and two linear equations give the new s' and
    B': that m changes by :math:`\sum p\delta`, and that the point comes to lie on the sphere.  If
    `small`, p is right only where the third number, :math:`|\delta|^2`, is.
    """
    slope = np.multiply(p, s, out=spare[0])
    slope += 1
    weight = np.divide(p, slope, out=spare[1])
    squares, total, pull = dot(p, p), weight.sum(axis=0), dot(weight, h)
    weight *= p
    first, second, pull_first = weight.sum(axis=0), dot(weight, p), dot(weight, h)
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
    if small:
        h -= step
        p *= grown(step, spare[0])
        return p.sum(axis=0), np.maximum(new_s, s / 1000), dot(step, step)
    # Written so that a column of nan keeps no other from it.
    if not step.max() <= _FAR_UP:
        _bend(step, p, s)
    h -= step
    np.exp(step, out=step)
    p *= step
    m = p.sum(axis=0)
    # Too far off the sphere for the next step to be of use; written so that nan is.
    far = np.flatnonzero(~(m <= c + c * _FAR_UP))
    if far.size:
        moved = np.take(p, far, axis=1)
        m[far], factor = put_on_sphere(moved, c)
        p[:, far] = moved
        h[:, far] -= np.log(factor)
    return m, np.maximum(new_s, s / 1000), None


def grown(step: Floats, out: Floats) -> Floats:
    """exp(step) to within 4.2e-14 for steps of at most `SMALL`, several times as fast."""
    np.multiply(step, 1 / 6, out=out)
    out += 0.5
    out *= step
    out += 1
    out *= step
    out += 1
    return out


def _bend(step: Floats, p: Floats, s: Floats) -> None:
    """Beyond p = 1/s the equation bends: going up far, step in p instead of in log p."""
    with_s = p * s
    rows, columns = np.nonzero((step > _FAR_UP) & (np.log(with_s) + step > 0))
    from_bend = with_s[rows, columns]
    bent = np.maximum(np.log1p(step[rows, columns]), -np.log(from_bend))
    step[rows, columns] = np.minimum(bent, -np.log(p[rows, columns]))


def put_on_sphere(p: Floats, c: Any) -> tuple[Floats, Floats]:
    """Scale p so that m^2 + |p|^2 = c^2; m, and the factor."""
    m = p.sum(axis=0)
    factor = c / np.sqrt(m * m + dot(p, p))
    p *= factor
    return m * factor, factor


def dot(x: Floats, y: Floats) -> Floats:
    sums: Floats = np.einsum("ij,ij->j", x, y)
    return sums
