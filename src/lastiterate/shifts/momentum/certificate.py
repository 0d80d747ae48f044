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

**The search** for matrices is a convex programme solved by Newton steps: over :math:`X_k \succ 0`
and :math:`\kappa_k > 0` it minimises :math:`\sum_k w_k/\kappa_k` subject to

.. math:: X_k + N_k \succeq A_k(l) X_{k-1} A_k(l)' + \kappa_k E_k \quad (k < T), \qquad
          f'\big(A_T(l) X_{T-1} A_T(l)' + \kappa_T E_T - N_T\big) \le \rho^2

at both ends l of the curvature, and :math:`X_k \preceq` `caps[k]`, which keeps the feasible set
bounded.  Here N_k is the covariance of the noise, E_k the direction of what the example adds in
step k, with the weight w_k (0 where it takes no part), f the entries of F'F, and rho the noise on
release.  A logarithmic barrier keeps every iterate strictly feasible, and Newton's matrix has
blocks for neighbouring steps only.  Nothing in the search is rigorous: what is found is checked in
intervals by `certified_kappas`.

**Its start** is found step by step from the last one to the first.  A X A' is at most Q, for Q > 0,
just where :math:`X^{-1} \ge A' Q^{-1} A`.  So for given kappa, each X_{k-1} is chosen as large as
the next one allows at both ends of the curvature.  From there Newton steps need not enlarge the
matrices little by little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solveh_banded

from lastiterate._numerics.rounding import Array, Interval, down
from lastiterate.shifts.momentum.recursion import (
    Recursion,
    Symmetric,
    are_definite,
    as_entries,
    determinant,
    join,
    largest_multiple,
    mixed,
)

_KAPPA_MARGIN = 1e-7  # of every kappa, left to roundings
_INNER, _LAST = slice(None, -1), slice(-1, None)
_SHARPER, _CENTRED = 3.0, 0.5  # by which a barrier is weakened, and the decrement to do so at
_HASTY_SHARPER, _HASTY_CENTRED = 20.0, 5.0  # the same where a given objective is enough
_MAX_NEWTON_STEPS = 100  # for one barrier
_MAX_NEWTON_STEPS_IN_ALL = 600
_RELATIVE_GAP = 2e-4  # of the objective: the nominal distance to the optimum at which to stop
_BLOCK_SIZE = 4  # kappa_k and the three entries of X_k
_RIDGE = 1e-14  # added to a diagonal of ones
_NOISE_SHARE = 0.5  # of the noise, left for kappa where the example takes part
_STRICT_SHARE = 0.02  # by which the start is strictly feasible, at the most
_NELDER_MEAD: Any = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 2_000}

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
    noise = _scale_by(Interval.exact(run.noise) * Interval.exact(run.noise), own)
    added = _directions(run, own)
    kappa = np.full(run.steps, np.inf)
    rooms = []
    for end in run.curvature:
        curve = Interval.exact(np.full(run.steps, end))
        moved = image((a00 + curve * b0, a01, a10 + curve * b1, a11), before)
        room = _subtract(_add(states, _cut(noise, _INNER)), _cut(moved, _INNER))
        rooms.append(room)
        inner = there[:-1]
        if np.any(inner):
            with np.errstate(all="ignore"):  # what fails is refused below
                found = largest_multiple(
                    middle(_cut(room, inner)), middle(_cut(_cut(added, _INNER), inner))
                )
            kappa[:-1][inner] = np.minimum(kappa[:-1][inner], down(found, _KAPPA_MARGIN))
        last = _released_variance(run, _cut(noise, _LAST)) - _released_variance(
            run, _cut(moved, _LAST)
        )
        last = last + Interval.exact([run.release_noise]) * Interval.exact([run.release_noise])
        if there[-1]:
            kappa[-1] = min(
                kappa[-1], _quotient_below(last, _released_variance(run, _cut(added, _LAST)))
            )
        elif not last.is_not_negative:
            return None
    return kappa if _leave_room(run, rooms, added, kappa) else None


def _states_before(run: LinearRun, states: Entries, start: float) -> Entries | None:
    """X_0 .. X_{T-1}."""
    first = _exact(np.zeros((1, 3)))
    if run.start is not None:
        matrix = _exact(run.start.matrix[None])
        if not (start > 0.0 and has_no_negative_eigenvalue(matrix)):
            return None
        first = _scale_by(Interval.exact([start]), matrix)
    x, y, z = (
        Interval(np.append(one.low, rest.low), np.append(one.high, rest.high))
        for one, rest in zip(first, states, strict=True)
    )
    return x, y, z


def _directions(run: LinearRun, own: Entries) -> Entries:
    """What the example adds in each step: `own`, B_k B_k', but where it is delayed."""
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


def _released_variance(run: LinearRun, matrix: Entries) -> Interval:
    """F X F'."""
    first, second = (Interval.exact([weight]) for weight in run.recursion.released)
    cross = first * second * matrix[1]
    return first * first * matrix[0] + cross + cross + second * second * matrix[2]


def _quotient_below(numerator: Interval, denominator: Interval) -> float:
    """A number that the quotient is surely not below; 0 where it may be negative."""
    if not (numerator.low[0] > 0.0 and denominator.high[0] > 0.0):
        return 0.0
    with np.errstate(over="ignore"):  # the float below inf is a bound, too
        return float(np.nextafter(numerator.low[0] / denominator.high[0], -np.inf))


def _leave_room(run: LinearRun, rooms: list[Entries], added: Entries, kappa: Array) -> bool:
    """Whether these kappas are positive and no more than there is room for, in intervals."""
    there = run.sensitivity > 0.0
    if not np.all(kappa[there] > 0.0):
        return False
    used = Interval.exact(np.where(there, kappa, 0.0)[:-1])
    taken = _scale_by(used, _cut(added, _INNER))
    return all(has_no_negative_eigenvalue(_subtract(room, taken)) for room in rooms)


def has_no_negative_eigenvalue(matrix: Entries) -> bool:
    """Whether no symmetric matrix in these intervals has a negative eigenvalue."""
    x, y, z = matrix
    return x.is_not_negative and z.is_not_negative and (x * z - y * y).is_not_negative


def _exact(entries: Array) -> Entries:
    x, y, z = (Interval.exact(entries[:, i]) for i in range(3))
    return x, y, z


def _add(one: Entries, other: Entries) -> Entries:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _subtract(one: Entries, other: Entries) -> Entries:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def _scale_by(factor: Interval, matrix: Entries) -> Entries:
    return factor * matrix[0], factor * matrix[1], factor * matrix[2]


def _cut(matrix: Entries, which: Any) -> Entries:
    return matrix[0][which], matrix[1][which], matrix[2][which]


def middle(matrix: Entries) -> Array:
    return np.stack([0.5 * (part.low + part.high) for part in matrix], axis=-1)


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
    while taken < _MAX_NEWTON_STEPS_IN_ALL:
        for _ in range(_MAX_NEWTON_STEPS):
            moved = _newton_step(programme, weight, kappa, matrices)
            taken += 1
            if moved is None:
                return matrices
            kappa, matrices, decrement = moved
            if enough > 0.0 and programme.cost(programme.largest_kappa(matrices)) <= enough:
                return matrices
            if decrement < centred:
                break
        if constraints / weight < _RELATIVE_GAP * programme.cost(kappa):
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


def _direction(
    programme: Programme, weight: float, kappa: Array, matrices: Array, left: Array, last: Array
) -> tuple[Array, Array, float]:
    """Newton's direction for kappa and the matrices, and the squared decrement."""
    steps, there = programme.steps, programme.takes_part
    gradient = np.zeros((_BLOCK_SIZE, steps))
    own = np.zeros((_BLOCK_SIZE, _BLOCK_SIZE, steps))  # second derivatives within a step
    before = np.zeros((_BLOCK_SIZE, _BLOCK_SIZE, steps))  # with those of the step before
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
    return _solve_in_blocks(gradient, own, before)


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


def _products(left: Array, right: Array) -> Array:
    """Matrix products, step by step."""
    first, second, third = (left[:, j, None] * right[None, j] for j in range(3))
    return np.asarray(first + second + third)


def _solve_in_blocks(gradient: Array, own: Array, before: Array) -> tuple[Array, Array, float]:
    """The solution for a matrix with these blocks, of which `own` is given below its diagonal."""
    steps = gradient.shape[1]
    size = steps * _BLOCK_SIZE
    bands = np.zeros((2 * _BLOCK_SIZE, size))
    for i in range(_BLOCK_SIZE):
        for j in range(i + 1):
            bands[i - j, j::_BLOCK_SIZE] = own[i, j]
        for j in range(_BLOCK_SIZE):
            bands[_BLOCK_SIZE + i - j, j : size - _BLOCK_SIZE : _BLOCK_SIZE] = before[i, j, 1:]
    scale = 1.0 / np.sqrt(bands[0])
    for band in range(2 * _BLOCK_SIZE):
        bands[band, : size - band] *= scale[: size - band] * scale[band:]
    bands[0] += _RIDGE
    target = -gradient.T.ravel() * scale
    solution = solveh_banded(bands, target, lower=True, overwrite_ab=True, check_finite=False)
    moves = (scale * solution).reshape(steps, _BLOCK_SIZE)
    return moves[:, 0], moves[:-1, 1:], float(solution @ target)


def backward_start(programme: Programme, ends: list[Array]) -> Array | None:
    """X_1 .. X_{T-1}, as large as can be from the last backwards; None where floats fail.

    `ends` are the steps A_k(l) at both ends of the curvature, in the programme's coordinates.
    """
    steps = programme.steps
    strict = 1.0 + max(_STRICT_SHARE / 10, min(_STRICT_SHARE, 5.0 / steps))
    both = [one.reshape(steps, 4).tolist() for one in ends]
    noise, caps = programme.noise.tolist(), programme.caps.tolist()
    there = programme.takes_part.tolist()
    # What has another direction than the noise needs room in all of them.
    delayed = (programme.takes_part & (determinant(programme.directions) > 0.0)).tolist()
    found = np.empty((steps - 1, 3))
    try:
        inverse = _last_inverse(programme)
        for k in range(steps - 1, 0, -1):
            state = _inverse(inverse)
            found[k - 1] = state
            if k == 1:
                break
            room = _add_multiple(state, noise[k - 1], 1.0 - _NOISE_SHARE if there[k - 1] else 1.0)
            if delayed[k - 1]:
                room = (_NOISE_SHARE * room[0], _NOISE_SHARE * room[1], _NOISE_SHARE * room[2])
            pulled = [_pull_back(_inverse(room), one[k - 1]) for one in both]
            small = 1.0 / caps[k - 2]
            joined = join(*(_add_multiple(one, (1.0, 0.0, 1.0), small) for one in pulled))
            inverse = (strict * joined[0], strict * joined[1], strict * joined[2])
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    return found if np.all(np.isfinite(found)) else None


def _last_inverse(programme: Programme) -> Symmetric:
    """The inverse of an X_{T-1} that leaves room for half of what the last step hides."""
    room = programme.release + float(programme.final @ programme.noise[-1])
    room *= (1.0 - _NOISE_SHARE if programme.takes_part[-1] else 1.0) * (1.0 - _STRICT_SHARE)
    total = np.sum(programme.last_maps, axis=0) / room
    small = 1.0 / float(programme.caps[-1])
    return float(total[0]) + small, float(total[1]) / 2.0, float(total[2]) + small


def _inverse(matrix: Symmetric) -> Symmetric:
    x, y, z = matrix
    whole = x * z - y * y
    if not whole > 0.0:
        raise ZeroDivisionError
    return z / whole, -y / whole, x / whole


def _add_multiple(matrix: Symmetric, other: Symmetric, times: float) -> Symmetric:
    return (
        matrix[0] + times * other[0],
        matrix[1] + times * other[1],
        matrix[2] + times * other[2],
    )


def _pull_back(matrix: Symmetric, step: list[float]) -> Symmetric:
    """A' Q A."""
    a00, a01, a10, a11 = step
    x, y, z = matrix
    left0, left1 = x * a00 + y * a10, y * a00 + z * a10
    right0, right1 = x * a01 + y * a11, y * a01 + z * a11
    return a00 * left0 + a10 * left1, a00 * right0 + a10 * right1, a01 * right0 + a11 * right1


@dataclass(frozen=True)
class CommonNorm:
    """|z|_P with |A(l) z|_P <= `rate` |z|_P at both ends of the curvature, as far as floats tell.

    Distances shrink in it where `rate` < 1, and then mu is bounded in the number of steps.
    """

    rate: float
    matrix: Array

    @property
    def inverse(self) -> Array:
        """P^-1."""
        return np.asarray(np.linalg.inv(self.matrix))

    @property
    def root(self) -> Array:
        """S with S'S = P: in the coordinates S z the norm is Euclidean."""
        return np.asarray(np.linalg.cholesky(self.matrix).T)


def common_norm(transitions: tuple[Array, Array]) -> CommonNorm:
    """The norm with the least rate for these two 2 x 2 matrices, by a search over P.

    Any P serves: the rate is computed from it.
    """
    low, high = (tuple(map(float, step.ravel())) for step in transitions)
    return _search_norm(low, high)


@lru_cache(maxsize=64)
def _search_norm(*entries: tuple[float, ...]) -> CommonNorm:
    from scipy.optimize import minimize  # slow to load, and not needed for plain steps

    transitions = [np.array(step).reshape(2, 2) for step in entries]
    scale = _balance(transitions)
    scaled = [scale @ step @ np.linalg.inv(scale) for step in transitions]

    def rate(point: Array) -> float:
        root = np.linalg.cholesky(_positive_matrix(point))
        inverse = np.linalg.inv(root)
        return max(float(np.linalg.norm(root.T @ step @ inverse.T, 2)) for step in scaled)

    found = min(
        (
            minimize(
                rate, np.array([np.log(first), 0.0]), method="Nelder-Mead", options=_NELDER_MEAD
            )
            for first in (0.05, 0.3, 1.0, 3.0)
        ),
        key=lambda result: float(result.fun),
    )
    matrix = scale.T @ _positive_matrix(found.x) @ scale
    return CommonNorm(float(found.fun), matrix / matrix[0, 0])


def _positive_matrix(point: Array) -> Array:
    second = np.exp(np.clip(point[0], -30.0, 30.0))
    off = np.tanh(np.clip(point[1], -8.0, 8.0)) * np.sqrt(second)
    return np.array([[1.0, off], [off, second]])


def _balance(transitions: list[Array]) -> Array:
    """A diagonal matrix that makes the off-diagonal entries of the steps alike."""
    top = max(abs(float(step[0, 1])) for step in transitions)
    low = max(abs(float(step[1, 0])) for step in transitions)
    ratio = np.sqrt(top / low) if top > 0.0 and low > 0.0 else 1.0
    return np.diag([1.0, float(ratio)])


def is_surely(norm: CommonNorm, steps: tuple[Step, ...], rate: float) -> bool:
    """Whether A P^-1 A' <= rate^2 P^-1 for each of these enclosed steps, decided in intervals."""
    x, y, z = (Interval.exact([value]) for value in as_entries(norm.inverse))
    allowed = Interval.exact([rate]) * Interval.exact([rate])
    for step in steps:
        first, cross, second = image(step, (x, y, z))
        left = (allowed * x - first, allowed * y - cross, allowed * z - second)
        if not has_no_negative_eigenvalue(left):
            return False
    return True
