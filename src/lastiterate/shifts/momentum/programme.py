r"""The search for a certificate of a linear recursion: a convex programme solved by Newton steps.

Over matrices :math:`X_k \succ 0` and numbers :math:`\kappa_k > 0` it minimises
:math:`\sum_k w_k/\kappa_k` subject to

.. math:: X_k + N_k \succeq A_k(l) X_{k-1} A_k(l)' + \kappa_k E_k \quad (k < T), \qquad
          f'\big(A_T(l) X_{T-1} A_T(l)' + \kappa_T E_T - N_T\big) \le \rho^2

at both ends l of the curvature, and :math:`X_k \preceq` `caps[k]`, which keeps the feasible set
bounded.  Here N_k is the covariance of the noise, E_k the direction of what the example adds in
step k, with the weight w_k (0 where it takes no part), f the entries of F'F, and rho the noise on
release.

A logarithmic barrier keeps every iterate strictly feasible, and Newton's matrix has blocks for
neighbouring steps only.  Nothing here is rigorous: what is found is checked in intervals by
`certificate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solveh_banded

from lastiterate._numerics.rounding import Array
from lastiterate.shifts.momentum.symmetric import are_definite, determinant, largest_multiple, mixed

_SHARPER, _CENTRED = 3.0, 0.5  # by which a barrier is weakened, and the decrement to do so at
_HASTY_SHARPER, _HASTY_CENTRED = 20.0, 5.0  # the same where a given objective is enough
_MOST_NEWTON_STEPS = 100  # for one barrier
_ENOUGH = 2e-4  # of the objective: the nominal distance to the optimum at which to stop
_MOST_STEPS_IN_ALL = 600
_BLOCK = 4  # kappa_k and the three entries of X_k
_RIDGE = 1e-14


@dataclass(frozen=True)
class Programme:
    """The data of the programme, all of it for steps 1 to T.

    `maps[i, k]` takes the entries of X to those of A_k(l_i) X A_k(l_i)'; `noise[k]` and
    `directions[k]` are the entries of N_k and E_k; `final` is f and `release` is rho^2.
    """

    maps: Array
    noise: Array
    directions: Array
    weights: Array
    final: Array
    release: float
    caps: Array

    @property
    def steps(self) -> int:
        """T."""
        return int(self.weights.size)

    @property
    def takes_part(self) -> NDArray[np.bool_]:
        """Which steps have a kappa."""
        return np.asarray(self.weights > 0.0)

    def slacks(self, kappa: Array, matrices: Array, *, constant: float = 1.0) -> tuple[Array, ...]:
        """The slack of every inequality: matrices for k < T, numbers for T.

        With `constant` 0 it is their change along a direction.
        """
        used = np.where(self.takes_part, kappa, 0.0)
        base = matrices + constant * self.noise[:-1] - used[:-1, None] * self.directions[:-1]
        left = np.stack([base, base])
        for i in (0, 1):
            left[i, 1:] -= np.einsum("kij,kj->ki", self.maps[i, 1:-1], matrices[:-1])
        last = constant * (self.release + self.final @ self.noise[-1])
        last = last - used[-1] * (self.final @ self.directions[-1])
        return left, last - self.last_maps @ matrices[-1]

    def below_caps(self, matrices: Array, *, constant: float = 1.0) -> Array:
        """The distance of the matrices to their caps, or its change."""
        return np.asarray(constant * self.caps[:, None] * np.array([1.0, 0.0, 1.0]) - matrices)

    @cached_property
    def past_maps(self) -> Array:
        """How the slacks of steps 2 .. T-1 depend on the matrices before them, by entries."""
        return np.ascontiguousarray(-self.maps[:, 1:-1].transpose(0, 2, 3, 1))

    @cached_property
    def last_maps(self) -> Array:
        """f'A_T(l) X A_T(l)'f as a linear function of the entries of X, for both l."""
        return np.asarray(np.einsum("j,ijk->ik", self.final, self.maps[:, -1]))

    def cost(self, kappa: Array) -> float:
        """The objective."""
        there = self.takes_part
        return float(np.sum(self.weights[there] / kappa[there]))

    def holds_strictly(self, kappa: Array, matrices: Array) -> bool:
        """Whether every inequality holds with something left, as far as floats tell."""
        left, last = self.slacks(kappa, matrices)
        return (
            are_definite(matrices)
            and are_definite(left)
            and are_definite(self.below_caps(matrices))
            and bool(np.all(last > 0.0) and np.all(kappa[self.takes_part] > 0.0))
        )

    def largest_kappa(self, matrices: Array) -> Array:
        """The largest kappa that these matrices leave room for, step by step."""
        left, last = self.slacks(np.zeros(self.steps), matrices)
        room = np.full(self.steps, 1.0)
        there = self.takes_part
        inner = there[:-1]
        both = [largest_multiple(one[inner], self.directions[:-1][inner]) for one in left]
        room[:-1][inner] = np.minimum(*both)
        if there[-1]:
            room[-1] = last.min() / (self.final @ self.directions[-1])
        return room


def solve(programme: Programme, matrices: Array, enough: float = 0.0) -> Array:
    """Better matrices than these, which must be strictly feasible with half their kappas.

    The search stops where the objective, with the largest kappas, is at most `enough`.
    """
    kappa = 0.5 * programme.largest_kappa(matrices)
    constraints = 8.0 * (programme.steps - 1) + np.count_nonzero(programme.takes_part) + 2
    weight = constraints / programme.cost(kappa)
    sharper, centred = (_HASTY_SHARPER, _HASTY_CENTRED) if enough > 0.0 else (_SHARPER, _CENTRED)
    taken = 0
    while taken < _MOST_STEPS_IN_ALL:
        for _ in range(_MOST_NEWTON_STEPS):
            moved = _newton_step(programme, weight, kappa, matrices)
            taken += 1
            if moved is None:
                return matrices
            kappa, matrices, decrement = moved
            if enough > 0.0 and programme.cost(programme.largest_kappa(matrices)) <= enough:
                return matrices
            if decrement < centred:
                break
        if constraints / weight < _ENOUGH * programme.cost(kappa):
            break
        weight *= sharper
    return matrices


def _newton_step(
    programme: Programme, weight: float, kappa: Array, matrices: Array
) -> tuple[Array, Array, float] | None:
    """The next point and the decrement before it, or None where floats allow no progress."""
    left, last = programme.slacks(kappa, matrices)
    try:
        with np.errstate(all="ignore"):  # where floats fail there is no progress
            d_kappa, d_matrices, decrement = _direction(
                programme, weight, kappa, matrices, left, last
            )
    except (LinAlgError, ValueError):
        return None
    if not 0.0 <= decrement < np.inf:
        return None
    d_left, d_last = programme.slacks(d_kappa, d_matrices, constant=0.0)
    there = programme.takes_part
    room = min(
        _room_for_matrices(matrices, d_matrices),
        _room_for_matrices(left, d_left),
        _room_for_matrices(programme.below_caps(matrices), -d_matrices),
        _room_for_numbers(last, d_last),
        _room_for_numbers(kappa[there], d_kappa[there]),
    )
    before = _barrier(programme, weight, kappa, matrices)
    length = min(1.0, 0.95 * room)
    while length > 1e-10:
        new_kappa, new_matrices = kappa + length * d_kappa, matrices + length * d_matrices
        if programme.holds_strictly(new_kappa, new_matrices):
            now = _barrier(programme, weight, new_kappa, new_matrices)
            if now <= before - 0.01 * length * decrement + 1e-11 * abs(before):
                return new_kappa, new_matrices, decrement
        length *= 0.5
    return None


def _barrier(programme: Programme, weight: float, kappa: Array, matrices: Array) -> float:
    left, last = programme.slacks(kappa, matrices)
    inside = np.log(determinant(matrices)).sum() + np.log(determinant(left)).sum()
    inside += np.log(determinant(programme.below_caps(matrices))).sum()
    inside += np.log(kappa[programme.takes_part]).sum() + np.log(last).sum()
    return float(weight * programme.cost(kappa) - inside)


def _room_for_matrices(now: Array, change: Array) -> float:
    """The first t at which a determinant of now + t change vanishes."""
    square, linear, constant = determinant(change), mixed(now, change), determinant(now)
    under = linear**2 - 4 * square * constant
    root = np.sqrt(np.maximum(under, 0.0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        times = np.stack([2 * constant / (root - linear), 2 * constant / (-root - linear)])
    times = np.where((times > 0.0) & (under >= 0.0), times, np.inf)
    return float(times.min())


def _room_for_numbers(now: Array, change: Array) -> float:
    falling = change < 0.0
    return float(np.min(now[falling] / -change[falling], initial=np.inf))


def _derivatives(matrix: Array) -> tuple[Array, Array]:
    """Gradient and Hessian of minus the logarithm of the determinant; the last axis is the step.

    That axis is long and the others are short, so sums over them are written out below.
    """
    x, y, z = matrix.T
    inverse = 1.0 / (x * z - y * y)
    slope = np.stack([-z, 2.0 * y, -x]) * inverse
    curve = slope[:, None] * slope[None]
    curve[0, 2] -= inverse
    curve[2, 0] -= inverse
    curve[1, 1] += 2.0 * inverse
    return slope, curve


def _direction(
    programme: Programme, weight: float, kappa: Array, matrices: Array, left: Array, last: Array
) -> tuple[Array, Array, float]:
    """Newton's direction for kappa and the matrices, and the squared decrement."""
    steps, there = programme.steps, programme.takes_part
    gradient = np.zeros((_BLOCK, steps))
    own = np.zeros((_BLOCK, _BLOCK, steps))  # second derivatives within a step
    before = np.zeros((_BLOCK, _BLOCK, steps))  # with those of the step before
    for sign, matrix in ((1.0, matrices), (-1.0, programme.below_caps(matrices))):
        slope, curve = _derivatives(matrix)
        gradient[1:, :-1] += sign * slope
        own[1:, 1:, :-1] += curve
    added = np.where(there[:-1], -programme.directions[:-1].T, 0.0)  # to slacks, by a kappa of 1
    on_kappa = -float(programme.final @ programme.directions[-1]) * there[-1]
    for i in (0, 1):
        slope, curve = _derivatives(left[i])
        gradient[1:, :-1] += slope
        gradient[0, :-1] += (added * slope).sum(axis=0)
        with_kappa = _products(curve, added[:, None])[:, 0]
        own[1:, 1:, :-1] += curve
        own[1:, 0, :-1] += with_kappa
        own[0, 0, :-1] += (added * with_kappa).sum(axis=0)
        past = programme.past_maps[i]
        with_past = _products(curve[:, :, 1:], past)
        gradient[1:, :-2] += (past * slope[:, None, 1:]).sum(axis=0)
        own[1:, 1:, :-2] += _products(past.swapaxes(0, 1), with_past)
        before[1:, 1:, 1:-1] += with_past
        before[0, 1:, 1:-1] += (added[:, None, 1:] * with_past).sum(axis=0)
        on_past = -programme.last_maps[i] / last[i]
        gradient[1:, -2] -= on_past
        own[1:, 1:, -2] += np.outer(on_past, on_past)
        gradient[0, -1] -= on_kappa / last[i]
        own[0, 0, -1] += (on_kappa / last[i]) ** 2
        before[0, 1:, -1] += on_kappa / last[i] * on_past
    pull = weight * programme.weights[there] / kappa[there] ** 2
    gradient[0, there] -= pull + 1.0 / kappa[there]
    own[0, 0, there] += 2.0 * pull / kappa[there] + 1.0 / kappa[there] ** 2
    own[0, 0, ~there] = 1.0
    own[1:, 1:, -1] = np.eye(3)
    return _solved(gradient, own, before)


def _products(left: Array, right: Array) -> Array:
    """Matrix products, step by step."""
    first, second, third = (left[:, j, None] * right[None, j] for j in range(3))
    return np.asarray(first + second + third)


def _solved(gradient: Array, own: Array, before: Array) -> tuple[Array, Array, float]:
    """The solution for a matrix with these blocks, of which `own` is given below its diagonal."""
    steps = gradient.shape[1]
    size = steps * _BLOCK
    bands = np.zeros((2 * _BLOCK, size))
    for i in range(_BLOCK):
        for j in range(i + 1):
            bands[i - j, j::_BLOCK] = own[i, j]
        for j in range(_BLOCK):
            bands[_BLOCK + i - j, j : size - _BLOCK : _BLOCK] = before[i, j, 1:]
    scale = 1.0 / np.sqrt(bands[0])
    for band in range(2 * _BLOCK):
        bands[band, : size - band] *= scale[: size - band] * scale[band:]
    bands[0] += _RIDGE
    target = -gradient.T.ravel() * scale
    solution = solveh_banded(bands, target, lower=True, overwrite_ab=True, check_finite=False)
    moves = (scale * solution).reshape(steps, _BLOCK)
    return moves[:, 0], moves[:-1, 1:], float(solution @ target)
