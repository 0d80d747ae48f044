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

**Certainty.** What is returned has been measured.  Newton's method, in float32 and then one step in
float64, meets the tolerance for nearly all logits as they occur; the few others are taken further
apart from them, and what it does not meet it for is solved by halving
intervals, since m falls with B, the norm with s.  Where floats end (logits of 1e299, or residuals
longer than a clip below 1e-5 by no more than rounding) that may fail too, and
`exact_wrong_part` halves intervals in many digits, which cannot: no finite logits raise an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from lastiterate._numerics.rounding import Array
from lastiterate.errors import NumericalFailure

TOLERANCE = 1e-11
_EQUATION_ROUNDING = 1e-13  # of F, relative to 2 + s/2: of floats, and of `grown`
CERTIFIED = TOLERANCE - _EQUATION_ROUNDING  # what |F|/(2 + s/2), as measured, may be
_LOWEST_LOGIT = -80.0
_LEAST_PROBABILITY = 1e-36
_COARSE_ROUNDS = 2
_FINE_ROUNDS = 20
_HALVINGS = 64
_FLOAT32_DOUBT = 1e-3  # of a squared length in float32
_MOST_FLOAT32_CLASSES = 2_000  # classes, whose sum in float32 is off by 2e-4 at most
_LEAST_FLOAT32_CLIP = 1e-6  # that float32 has the square of
Columns = NDArray[np.intp]
Floats = NDArray[np.floating]
SMALL = 1e-3  # the norm of steps for which `grown` will do
_LONG_STEP = 0.5
_DIGITS = 45
_EXACT_HALVINGS = 130
_OMEGA_ROUNDS = 3
_LEAST_LOG_MULTIPLIER = Decimal(-90)
_LEAST_OMEGA_ARGUMENT = Decimal(-40)  # below it, a solution of y + log y = x is e^x to many digits


class _Softmax(NamedTuple):
    """Probabilities of wrong classes in units of that of the likeliest, whose logit is `top`."""

    v: Floats
    top: Floats
    p: Floats
    total: Floats
    squares: Floats

    def of(self, columns: Columns) -> Self:
        if columns.size == self.top.size:
            return self
        return type(self)(*(np.take(x, columns, axis=-1) for x in self))


class _Guess(NamedTuple):
    h: Floats
    s: Floats


def clipped_wrong_part(v: Array, c: float) -> Array:
    """Wrong-class probabilities for every column of `v`, which is overwritten.

    They are the softmax where its residual is no longer than c, and p to within `TOLERANCE`
    elsewhere.
    """
    with np.errstate(all="ignore"):
        rough = _softmax(v, np.float32)
        own = np.exp(-rough.top)
        # Logits above 10 may be far off in float32, but with these the label's share is nothing
        # and the residual longer than 1.  Written so that nan is in doubt.
        least = np.float32(c * c * (1.0 + _FLOAT32_DOUBT))
        long = rough.total**2 + rough.squares > least * (rough.total + own) ** 2
        # In float32 a sum of more classes may be off by more than the doubt.
        long &= (c > _LEAST_FLOAT32_CLIP) & (len(v) <= _MOST_FLOAT32_CLASSES)
        doubtful = np.flatnonzero(~long)
        found = v
        if doubtful.size:
            found = _exact_softmax(np.take(v, doubtful, axis=1))
            m = found.sum(axis=0)
            # Written so that nan is clipped, and fails there.
            long[doubtful] = ~(m * m + dot(found, found) <= c * c)
    clipped = np.flatnonzero(long)
    if not clipped.size:
        return found
    if clipped.size == long.size:
        return wrong_class_part(v, c, rough)
    p = wrong_class_part(np.take(v, clipped, axis=1), c, rough.of(clipped))
    v[:, doubtful] = found
    v[:, clipped] = p
    return v


def wrong_class_part(v: Array, c: float, rough: _Softmax | None = None) -> Array:
    """p for every column of `v`, to within `TOLERANCE`; `v` is overwritten."""
    np.maximum(v, _LOWEST_LOGIT, out=v)
    # A guess may overflow: it is judged by what comes of it.
    with np.errstate(all="ignore"):
        rough = _softmax(v, np.float32) if rough is None else rough
        # In float32 to some six digits first.
        p, left = _refine(v, _approximate(rough, c, rounds=_COARSE_ROUNDS), c)
        for method in (_solve_in_float64, _bisect):
            if left.size:
                found, failed = method(np.take(v, left, axis=1), c)
                p[:, left], left = found, left[failed]
    for k in left:
        # A column is solved by itself, so that no other has a part in whether it is.
        if not np.isfinite(v[:, k]).all():
            raise NumericalFailure("a logit is not finite, so that its residual is not known")
        p[:, k] = exact_wrong_part(v[:, k].tolist(), c)
    return p


def _softmax(v: Array, kind: type[np.floating[Any]]) -> _Softmax:
    logits = v.astype(kind)
    np.maximum(logits, kind(_LOWEST_LOGIT), out=logits)
    top = np.maximum(logits.max(axis=0), kind(0.0))
    p = np.exp(logits - top)
    return _Softmax(logits, top, p, p.sum(axis=0), dot(p, p))


def _exact_softmax(v: Array) -> Array:
    top = np.maximum(v.max(axis=0), 0.0)
    p: Array = v - top
    np.exp(p, out=p)
    p /= p.sum(axis=0) + np.exp(-top)
    return p


def _solve_in_float64(v: Array, c: float) -> tuple[Array, Columns]:
    """p, solved for in float64 from the start, and the columns in which it is not certified."""
    return _refine(v, _approximate(_softmax(v, np.float64), c, rounds=0), c)


def _approximate(start: _Softmax, clip: float, *, rounds: int) -> _Guess:
    """The approximate solution from that of the margin clip; overwrites p."""
    kind = start.v.dtype.type
    c, least = kind(clip), kind(1e-3)
    p = start.p
    p += kind(_LEAST_PROBABILITY)  # a logarithm will be taken
    factor = c / np.sqrt(start.total * start.total + start.squares)
    m = start.total * factor
    common = start.top - np.log(factor)
    empty = np.log(1 - m)
    s = np.maximum(m * (common + empty) / (c * c), least)
    # p = W(y)/s for these s and B; with z = log(1 + y), W(y) is about z (1 + .83z)/(1 + 1.33z).
    p *= factor * s * np.exp(np.minimum(common + empty - s * m, 80))
    spare = np.empty((2, *p.shape), kind)
    whole = np.add(p, 1, out=spare[0])
    p /= whole
    # Where 1 + y is 1 in floats, z is y.
    z = np.maximum(p, np.log(whole, out=whole), out=p)
    above = np.multiply(z, kind(0.83), out=spare[0])
    above += 1
    below = np.multiply(z, kind(1.33), out=spare[1])
    below += 1
    p *= above
    p /= below
    mass, _ = put_on_sphere(p, c)
    h = start.v - np.log(p, out=spare[0])
    guess: Floats = np.maximum((dot(p, h) + mass * np.log(1 - mass)) / (c * c), least)
    for done in range(rounds):
        mass, guess, _ = newton(p, h, mass, guess, c, spare, small=done > 0)
        guess = np.maximum(guess, least)
    return _Guess(h, guess)


def _refine(v: Array, guess: _Guess, c: float) -> tuple[Array, Columns]:
    h: Floats = guess.h.astype(np.float64)
    s: Floats = guess.s.astype(np.float64)
    p: Array = v - h
    np.exp(p, out=p)
    solution, left = p, np.arange(s.size)
    spare = np.empty((2, *p.shape))
    for done in range(_FINE_ROUNDS):
        # From float32 the first step is small but for a few columns, which fail here.
        small = done == 0 and guess.h.dtype == np.float32
        _, s, reach = newton(p, h, p.sum(axis=0), s, c, spare, small=small)
        rest = _uncertified_columns(p, h, s, c, reach, spare[0])
        if not rest.size:
            break
        if small or rest.size < left.size:
            if solution is not p:
                solution[:, left] = p
            h, s, left = np.take(h, rest, axis=1), s[rest], left[rest]
            # Of a step that was not small p is wrong, but h is right.
            p = np.exp(np.take(v, left, axis=1) - h) if small else np.take(p, rest, axis=1)
            spare = np.empty((2, *p.shape))
    if solution is not p:
        solution[:, left] = p
    return solution, left if rest.size else rest


def _uncertified_columns(
    p: Array, h: Floats, s: Floats, c: float, reach: Floats | None, spare: Array
) -> Columns:
    """Put p on the sphere, in place, and say in which columns it is not good enough."""
    m, factor = put_on_sphere(p, c)
    off = np.multiply(p, s, out=spare)
    off -= h
    # h goes with p from before.
    h -= np.log(factor)
    off += s * m - np.log1p(-m) + np.log(factor)
    return _too_far_off(off, s, reach)


def _too_far_off(off: Array, s: Floats, reach: Floats | None = None) -> Columns:
    good = dot(off, off) <= (CERTIFIED * (2.0 + s / 2)) ** 2
    if reach is not None:
        good &= reach <= SMALL * SMALL
    # Written so that nan is not good enough.
    return np.flatnonzero(~good)


def _bisect(v: Array, c: float) -> tuple[Array, Columns]:
    """The solution by bisection in log s and, for each s, in B less the top v."""
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
        long = m * m + dot(p, p) > c * c
        low, high = np.where(long, log_s, low), np.where(long, high, log_s)
    m, _ = put_on_sphere(p, c)
    off = s * p + (s * m - np.log1p(-m)) - v + np.log(p)
    # Classes whose p has no logarithm in floats are as good as absent.
    return p, _too_far_off(np.where(p <= 1e-300, 0.0, off), s)


# One step of Newton's method for these equations.


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
    if not step.max() <= _LONG_STEP:
        _bend(step, p, s)
    h -= step
    np.exp(step, out=step)
    p *= step
    m = p.sum(axis=0)
    # Too far off the sphere for the next step to be of use; written so that nan is.
    far = np.flatnonzero(~(m <= c + c * _LONG_STEP))
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
    rows, columns = np.nonzero((step > _LONG_STEP) & (np.log(with_s) + step > 0))
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


# The equations for one example, by halving intervals in many digits.
#
# It takes seconds, and is needed where floats end: for logits of 1e299, or residuals that are
# longer than a tiny clip by no more than rounding.  For a given multiplier s the mass m falls with
# the common constant B, and the norm of the residual falls with s.  Two intervals that are halved
# hold the solution, whatever the logits: nothing can fail.


def exact_wrong_part(v: Sequence[float], c: float) -> list[float]:
    """Wrong-class probabilities for finite wrong logits less the label's."""
    with localcontext(prec=_DIGITS):
        logits, clip = [Decimal(one) for one in v], Decimal(c)
        top = max(Decimal(0), *logits)
        p = [(one - top).exp() for one in logits]
        total = sum(p) + (-top).exp()
        p = [one / total for one in p]
        if _squared_norm(p) > clip * clip:
            p = _clip_exactly(logits, clip, top)
        return [float(one) for one in p]


def _clip_exactly(v: list[Decimal], c: Decimal, top: Decimal) -> list[Decimal]:
    spread = Decimal(len(v)).ln() + 2
    low, high = _LEAST_LOG_MULTIPLIER, (4 * (top + spread) / (c * c)).ln()
    p: list[Decimal] = []
    for _ in range(_EXACT_HALVINGS):
        log_s = (low + high) / 2
        p = _p_for_multiplier(v, log_s, top, spread)
        low, high = (log_s, high) if _squared_norm(p) > c * c else (low, log_s)
    factor = c / _squared_norm(p).sqrt()
    return [one * factor for one in p]


def _p_for_multiplier(
    v: list[Decimal], log_s: Decimal, top: Decimal, spread: Decimal
) -> list[Decimal]:
    """p for this s, by halving an interval of B less the top logit."""
    s = log_s.exp()
    # As B is at least 0, and as no p exceeds 1.
    least, most = max(-top, -s), s + spread
    p: list[Decimal] = []
    for _ in range(_EXACT_HALVINGS):
        beyond = (least + most) / 2
        p = [_omega(one - top - beyond + log_s) / s for one in v]
        m = sum(p, Decimal(0))
        small = m >= 1 or s * m - (1 - m).ln() - top > beyond
        least, most = (beyond, most) if small else (least, beyond)
    return p


def _omega(x: Decimal) -> Decimal:
    """The solution of y + log y = x."""
    if x < _LEAST_OMEGA_ARGUMENT:
        return x.exp()
    y = Decimal(float(wrightomega(float(x)))) if x < 10**15 else x
    for _ in range(_OMEGA_ROUNDS):
        y *= (1 + x - y.ln()) / (1 + y)
    return y


def _squared_norm(p: list[Decimal]) -> Decimal:
    m = sum(p, Decimal(0))
    return m * m + sum((one * one for one in p), Decimal(0))
