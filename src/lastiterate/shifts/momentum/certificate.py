r"""The proof that a linear recursion is mu-GDP, checked in interval arithmetic.

**Theorem.** The state is :math:`z_k = A_k z_{k-1} + B_k g_k`, what is released
:math:`F z_T + N(0, \rho^2 I)`.  Here g_k is the gradient of the batch at x = C z_{k-1}, C = (1, 0),
plus :math:`N(0, \sigma_k^2 I)`.  The start, the order and all A_k, B_k, :math:`\sigma_k` do not
depend on the data.  For one of the two data sets and all x, y

.. math:: |g(x) - g(y) - \tfrac{m+M}{2}(x - y)| \le \tfrac{M-m}{2} |x - y| ,

and the other data set's gradient differs from it by at most s_k at every x.  With
:math:`A_k(l) = A_k + l B_k C`, let matrices :math:`X_k \succeq 0`, X_0 = 0, and numbers
:math:`\kappa_k > 0` (0 where s_k = 0) satisfy for l = m and l = M

.. math:: X_k + \sigma_k^2 B_k B_k' \succeq A_k(l) X_{k-1} A_k(l)' + \kappa_k B_k B_k'
          \quad (k < T), \qquad
          F A_T(l) X_{T-1} A_T(l)' F' + \kappa_T (F B_T)^2 \le \sigma_T^2 (F B_T)^2 + \rho^2 .

Then what is released is mu-GDP with :math:`\mu^2 = \sum_k s_k^2/\kappa_k`.  The proof, and that of
what `Start` and `delayed` directions stand for, is on docs/momentum.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.intervals import Interval
from lastiterate._numerics.rounding import Array, down
from lastiterate.shifts.momentum.recursion import Recursion
from lastiterate.shifts.momentum.symmetric import largest_multiple

_MARGIN = 1e-7  # of every kappa, left to roundings
_INNER, _LAST = slice(None, -1), slice(-1, None)

Entries = tuple[Interval, Interval, Interval]
"""(a, b, c) of symmetric matrices ((a, b), (b, c))."""
Step = tuple[Interval, Interval, Interval, Interval]
"""a00, a01, a10, a11 of a step A."""


@dataclass(frozen=True)
class Start:
    """The cost of steps before the first one: X_0 is kappa `matrix`, and costs `weight`/kappa."""

    matrix: Array
    weight: float


@dataclass(frozen=True)
class LinearRun:
    """The run that a certificate is about.

    `sensitivity` and `noise` are those of the averaged gradient, one per step; the sensitivity is
    0 where the example takes no part.  In steps that `delayed` marks, what it adds has the given
    `directions` (entries of a matrix) instead of B_k B_k'.
    """

    recursion: Recursion
    curvature: tuple[float, float]
    sensitivity: Array
    noise: Array
    release_noise: float
    start: Start | None = None
    delayed: NDArray[np.bool_] | None = None
    directions: Array | None = None

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.recursion.steps


def certified_kappas(run: LinearRun, matrices: Array, start: float = 0.0) -> Array | None:
    """kappa_k of each step for these matrices X_1 .. X_{T-1}; None where they prove nothing.

    `start` is the kappa of what came before.  The others are the largest that the matrices allow,
    less a margin, and inf in steps without the example.  Every inequality is decided in intervals.
    """
    there = run.sensitivity > 0.0
    states = _exact(matrices)
    before = _states_before(run, states, start)
    if before is None or not has_no_negative_eigenvalue(states):
        return None
    a00, a01, a10, a11, b0, b1 = run.recursion.enclosed_entries()
    own = (b0 * b0, b0 * b1, b1 * b1)
    noise = _times(Interval.exact(run.noise) * Interval.exact(run.noise), own)
    added = _directions(run, own)
    kappa = np.full(run.steps, np.inf)
    rooms = []
    for end in run.curvature:
        curve = Interval.exact(np.full(run.steps, end))
        moved = image((a00 + curve * b0, a01, a10 + curve * b1, a11), before)
        room = _less(_sum(states, _cut(noise, _INNER)), _cut(moved, _INNER))
        rooms.append(room)
        inner = there[:-1]
        if np.any(inner):
            with np.errstate(all="ignore"):  # what fails is refused below
                found = largest_multiple(
                    _middle(_cut(room, inner)), _middle(_cut(_cut(added, _INNER), inner))
                )
            kappa[:-1][inner] = np.minimum(kappa[:-1][inner], down(found, _MARGIN))
        last = _released(run, _cut(noise, _LAST)) - _released(run, _cut(moved, _LAST))
        last = last + Interval.exact([run.release_noise]) * Interval.exact([run.release_noise])
        if there[-1]:
            kappa[-1] = min(kappa[-1], _quotient_below(last, _released(run, _cut(added, _LAST))))
        elif not last.is_not_negative:
            return None
    return kappa if _proved(run, rooms, added, kappa) else None


def _proved(run: LinearRun, rooms: list[Entries], added: Entries, kappa: Array) -> bool:
    there = run.sensitivity > 0.0
    if not np.all(kappa[there] > 0.0):
        return False
    used = Interval.exact(np.where(there, kappa, 0.0)[:-1])
    taken = _times(used, _cut(added, _INNER))
    return all(has_no_negative_eigenvalue(_less(room, taken)) for room in rooms)


def _states_before(run: LinearRun, states: Entries, start: float) -> Entries | None:
    """X_0 .. X_{T-1}."""
    first = _exact(np.zeros((1, 3)))
    if run.start is not None:
        matrix = _exact(run.start.matrix[None])
        if not (start > 0.0 and has_no_negative_eigenvalue(matrix)):
            return None
        first = _times(Interval.exact([start]), matrix)
    x, y, z = (
        Interval(np.append(one.low, rest.low), np.append(one.high, rest.high))
        for one, rest in zip(first, states, strict=True)
    )
    return x, y, z


def _directions(run: LinearRun, own: Entries) -> Entries:
    if run.delayed is None or run.directions is None:
        return own
    x, y, z = (
        Interval(
            np.where(run.delayed, run.directions[:, i], part.low),
            np.where(run.delayed, run.directions[:, i], part.high),
        )
        for i, part in enumerate(own)
    )
    return x, y, z


def image(step: Step, state: Entries) -> Entries:
    """A X A'."""
    a00, a01, a10, a11 = step
    x, y, z = state
    top0, top1 = a00 * x + a01 * y, a00 * y + a01 * z
    low0, low1 = a10 * x + a11 * y, a10 * y + a11 * z
    return top0 * a00 + top1 * a01, top0 * a10 + top1 * a11, low0 * a10 + low1 * a11


def _released(run: LinearRun, matrix: Entries) -> Interval:
    """F X F'."""
    first, second = (Interval.exact([weight]) for weight in run.recursion.released)
    cross = first * second * matrix[1]
    return first * first * matrix[0] + cross + cross + second * second * matrix[2]


def _quotient_below(numerator: Interval, denominator: Interval) -> float:
    if not (numerator.low[0] > 0.0 and denominator.high[0] > 0.0):
        return 0.0
    with np.errstate(over="ignore"):  # the float below inf is a bound, too
        return float(np.nextafter(numerator.low[0] / denominator.high[0], -np.inf))


def has_no_negative_eigenvalue(matrix: Entries) -> bool:
    """Whether none of these symmetric matrices can have one, decided in intervals."""
    x, y, z = matrix
    return x.is_not_negative and z.is_not_negative and (x * z - y * y).is_not_negative


def _exact(entries: Array) -> Entries:
    x, y, z = (Interval.exact(entries[:, i]) for i in range(3))
    return x, y, z


def _sum(one: Entries, other: Entries) -> Entries:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _less(one: Entries, other: Entries) -> Entries:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _times(factor: Interval, matrix: Entries) -> Entries:
    return factor * matrix[0], factor * matrix[1], factor * matrix[2]


def _cut(matrix: Entries, which: Any) -> Entries:
    return matrix[0][which], matrix[1][which], matrix[2][which]


def _middle(matrix: Entries) -> Array:
    return np.stack([0.5 * (part.low + part.high) for part in matrix], axis=-1)
