"""mu of what a linear recursion releases, for participations in known steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from lastiterate._numerics.intervals import Interval
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    at_least,
    down,
    up,
)
from lastiterate.shifts.momentum.backward_start import backward_start
from lastiterate.shifts.momentum.certificate import (
    Entries,
    LinearRun,
    Start,
    certified_kappas,
    has_no_negative_eigenvalue,
)
from lastiterate.shifts.momentum.common_norm import CommonNorm, common_norm, is_surely
from lastiterate.shifts.momentum.programme import Programme, solve
from lastiterate.shifts.momentum.recursion import Recursion
from lastiterate.shifts.momentum.symmetric import as_entries, congruence, largest_multiple, outer

_MOST_STEPS = 30_000  # solved for; earlier participations are composed
_FAINT = 1e-4  # what is left of a distance where the past may be cut
_LEAST_STEPS = 500
_RATE_MARGIN = 1e-9
_GENEROUS = 10.0
_STRICTLY = 1e-4
_FARTHEST, _FAINTEST = 30.0, -300.0  # logarithms of sizes of X_k against that of X_T


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def none_beyond_floats(
    search: Callable[_Arguments, _Result | None],
) -> Callable[_Arguments, _Result | None]:
    """A search for a certificate that finds none where numbers leave the range of floats.

    A certificate is checked in intervals, and infinities and nan fail the check.
    """

    @wraps(search)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result | None:
        try:
            with np.errstate(all="ignore"):
                return search(*args, **kwargs)
        except (OverflowError, ZeroDivisionError, np.linalg.LinAlgError):
            return None

    return guarded


@dataclass(frozen=True)
class Certified:
    """The certified kappa of each of the last steps, which is inf in steps without the example.

    `before` is the energy (the part of mu^2) of participations before these steps.
    """

    kappa: Array
    before: float

    def energies(self, sensitivity: Array) -> Array:
        """s_k^2/kappa_k of the last steps for these sensitivities, rounded up."""
        squares = np.nextafter(sensitivity[-self.kappa.size :] ** 2, np.inf)
        costs = np.nextafter(squares / self.kappa, np.inf)
        return np.where(np.isinf(self.kappa), 0.0, costs)


def recursion_mu(run: LinearRun, enough: float = 0.0) -> float:
    """The mu for which what the run releases is surely mu-GDP, never above that of composition.

    The search stops where mu^2 is at most `enough`.

    **Bound.** The theorem of `certificate`, for the best matrices that a search found.

    **Tight.** Within the search's tolerance of the programme's least value, which is a little
    above what quadratic losses attain (docs/momentum.md).
    """
    if not np.any(run.sensitivity > 0.0):
        return 0.0
    energy = _certified_energy(run, enough)
    composed = _composed(run)
    return at_least(math.sqrt(composed if energy is None else min(composed, energy)), ulps=4)


@none_beyond_floats
def _certified_energy(run: LinearRun, enough: float) -> float | None:
    """mu^2 by the certificate that the search finds."""
    found = certified(run, enough)
    if found is None:
        return None
    return up(math.fsum(found.energies(run.sensitivity)) + found.before, FEW_ROUNDINGS)


@none_beyond_floats
def certified(run: LinearRun, enough: float = 0.0) -> Certified | None:
    """The certificate that the search finds for these sensitivities; None where it finds none.

    The search stops where the energy of all participations together is at most `enough`.
    """
    there = np.flatnonzero(run.sensitivity > 0.0)
    run = _last(run, run.steps - int(there[0]))
    norm = common_norm(last_transitions(run.recursion, run.curvature))
    kept, composed = _without_past(run, norm)
    if kept.steps == 1 and kept.start is None:
        kappa = certified_kappas(kept, np.zeros((0, 3)))
        return None if kappa is None else Certified(kappa, composed)
    unit = 2.0 ** math.floor(math.log2(max(float(run.noise.max()), run.release_noise)))
    programme, first = _programme(kept, norm, unit)
    if first is None:
        return None
    back = np.linalg.inv(turned_to_noise(kept.recursion, norm))
    to_state = congruence(back[0, 0], back[0, 1], back[1, 0], back[1, 1]) * unit**2
    largest = float(kept.sensitivity.max())
    for matrices in (solve(programme, first, enough * (unit / largest) ** 2), first):
        states, start, before = matrices @ to_state.T, 0.0, composed
        if kept.start is not None:
            start = down(float(largest_multiple(states[0], kept.start.matrix)), _RATE_MARGIN)
            states = states[1:]
            before += up(kept.start.weight / start, FEW_ROUNDINGS) if start > 0.0 else math.inf
        kappa = certified_kappas(kept, states, start)
        if kappa is not None:
            return Certified(kappa, before)
    return None


def _last(run: LinearRun, count: int) -> LinearRun:
    first = run.steps - count
    return replace(
        run,
        recursion=run.recursion.last(count),
        sensitivity=run.sensitivity[first:],
        noise=run.noise[first:],
        delayed=None if run.delayed is None else run.delayed[first:],
        directions=None if run.directions is None else run.directions[first:],
    )


def last_transitions(recursion: Recursion, curvature: tuple[float, float]) -> tuple[Array, Array]:
    """A_T(l) at both ends of the curvature."""
    a00, a01, a10, a11, b0, b1 = (entry[-1] for entry in recursion.entries())
    low, high = (np.array([[a00 + end * b0, a01], [a10 + end * b1, a11]]) for end in curvature)
    return low, high


def _without_past(run: LinearRun, norm: CommonNorm) -> tuple[LinearRun, float]:
    """The steps that matter, and the energy of participations before them that are composed.

    Where distances shrink in the norm, older steps are a `Start` instead.
    """
    if norm.rate < 1.0 and run.recursion.is_constant:
        kept = max(math.ceil(math.log(_FAINT) / math.log(max(norm.rate, TINY))), _LEAST_STEPS)
        if 2 * kept < run.steps:
            start = _start(run, norm, run.steps - kept)
            if start is not None:
                return replace(_last(run, kept), start=start), 0.0
    first = run.steps - _MOST_STEPS
    if first <= 0 or (run.delayed is not None and np.any(run.delayed[:first])):
        return run, 0.0
    past = replace(run, sensitivity=run.sensitivity[:first], noise=run.noise[:first])
    return _last(run, _MOST_STEPS), _composed(replace(past, delayed=None))


def _composed(run: LinearRun) -> float:
    """mu^2 of all participations where every iterate is released; inf for delayed ones."""
    if run.delayed is not None and np.any(run.delayed):
        return math.inf
    there = run.sensitivity > 0.0
    if not np.all(run.noise[there] > 0.0):
        return math.inf
    with np.errstate(over="ignore"):
        squares = (run.sensitivity[there] / run.noise[there]) ** 2
        return up(float(np.sum(squares)), MILLIONS_OF_ROUNDINGS)


def _start(run: LinearRun, norm: CommonNorm, cut: int) -> Start | None:
    """The cost of the first `cut` steps if distances shrink in the norm; None if unsure.

    X_k = x rate^(k - cut) P^-1 is feasible with kappa_k = x rate^(k - cut) c, as long as
    (1 - rate) P^-1 >= c B B'.
    """
    rate = max(up(norm.rate, _RATE_MARGIN), TINY)
    a00, a01, a10, a11, b0, b1 = (entry[[0, -1]] for entry in run.recursion.enclosed_entries())
    ends = [Interval.exact([end]) for end in run.curvature]
    steps = tuple(
        (a00[1:] + end * b0[1:], a01[1:], a10[1:] + end * b1[1:], a11[1:]) for end in ends
    )
    if not (rate < 1.0 and is_surely(norm, steps, rate)):
        return None
    inverse = as_entries(norm.inverse)
    directions = _past_directions(run, cut, b0, b1)
    room = (1.0 - rate) * inverse
    share = min(float(largest_multiple(room, _middle(one))) for one in directions)
    share = down(share, _RATE_MARGIN)
    left = Interval.exact([1.0]) - Interval.exact([rate])
    x, y, z = (left * Interval.exact([value]) for value in inverse)
    part = Interval.exact([share])
    for one in directions:
        if not has_no_negative_eigenvalue(
            (x - part * one[0], y - part * one[1], z - part * one[2])
        ):
            return None
    ages = cut - 1 - np.arange(cut)
    squares = run.sensitivity[:cut] ** 2 * np.exp(math.log(rate) * ages)
    return Start(inverse, up(float(np.sum(squares)) / share, MILLIONS_OF_ROUNDINGS))


def _past_directions(run: LinearRun, cut: int, b0: Interval, b1: Interval) -> list[Entries]:
    """The directions that an example may add in the first `cut` steps, each once."""
    found: list[Entries] = [
        (b0[i] * b0[i], b0[i] * b1[i], b1[i] * b1[i]) for i in (slice(0, 1), slice(1, 2))
    ]
    if run.delayed is not None and run.directions is not None:
        for row in np.unique(run.directions[:cut][run.delayed[:cut]], axis=0):
            x, y, z = (Interval.exact([value]) for value in row)
            found.append((x, y, z))
    return found


def _middle(matrix: Entries) -> Array:
    return np.array([0.5 * float(part.low[0] + part.high[0]) for part in matrix])


def _programme(run: LinearRun, norm: CommonNorm, unit: float) -> tuple[Programme, Array | None]:
    """The programme in coordinates in which the norm is Euclidean, and where to begin."""
    root = turned_to_noise(run.recursion, norm)
    back = np.linalg.inv(root)
    a00, a01, a10, a11, b0, b1 = run.recursion.entries()
    ends = []
    for end in run.curvature:
        steps = np.stack([[a00 + end * b0, a01], [a10 + end * b1, a11]]).transpose(2, 0, 1)
        turned = root @ steps @ back
        ends.append(turned)
    maps = np.stack(
        [congruence(one[:, 0, 0], one[:, 0, 1], one[:, 1, 0], one[:, 1, 1]) for one in ends]
    )
    turned0, turned1 = root[0, 0] * b0 + root[0, 1] * b1, root[1, 0] * b0 + root[1, 1] * b1
    own = outer(turned0, turned1)
    noise = own * ((run.noise / unit) ** 2)[:, None]
    directions = own
    to_norm = congruence(root[0, 0], root[0, 1], root[1, 0], root[1, 1])
    if run.delayed is not None and run.directions is not None:
        directions = np.where(run.delayed[:, None], run.directions @ to_norm.T, own)
    largest = float(run.sensitivity.max())
    weights = (run.sensitivity / largest) ** 2
    released = np.array(run.recursion.released) @ back
    final = np.array([released[0] ** 2, 2 * released[0] * released[1], released[1] ** 2])
    growth = np.max([np.linalg.norm(one, 2, axis=(1, 2)) ** 2 for one in ends], axis=0)
    if run.start is not None:
        maps = np.concatenate([np.zeros((2, 1, 3, 3)), maps], axis=1)
        noise = np.concatenate([np.zeros((1, 3)), noise])
        directions = np.concatenate([(to_norm @ run.start.matrix)[None], directions])
        weights = np.concatenate([[run.start.weight / largest**2], weights])
        growth = np.concatenate([[1.0], growth])
        ends = [np.concatenate([np.zeros((1, 2, 2)), one]) for one in ends]
    logs = _sizes(growth)
    scale = float(np.max(noise[:, 0] + noise[:, 2]))
    caps = _GENEROUS * (1_000.0 + run.steps) * scale * np.exp(np.clip(logs, 0.0, _FARTHEST))
    programme = Programme(
        maps, noise, directions, weights, final, (run.release_noise / unit) ** 2, caps
    )
    return programme, _feasible(programme, ends, logs)


def turned_to_noise(recursion: Recursion, norm: CommonNorm) -> Array:
    """S for which the norm of z is the length of S z, and the noise lies along the first axis.

    The noise can be far larger than X_k in every other direction; along an axis it does not hide
    the small entries.
    """
    *_, b0, b1 = recursion.entries()
    first = norm.root @ np.array([b0[-1], b1[-1]])
    first = first / np.linalg.norm(first)
    turn = np.array([[first[0], first[1]], [-first[1], first[0]]])
    return np.asarray(turn @ norm.root)


def _feasible(programme: Programme, ends: list[Array], logs: Array) -> Array | None:
    """Strictly feasible matrices, the largest ones or else multiples of the identity."""
    for matrices in (backward_start(programme, ends), _first_matrices(programme, logs)):
        if matrices is not None:
            with np.errstate(all="ignore"):  # where floats fail it does not hold
                kappa = 0.5 * programme.largest_kappa(matrices)
                if programme.holds_strictly(kappa, matrices):
                    return matrices
    return None


def _sizes(growth: Array) -> Array:
    """Logarithms of sizes of X_1 .. X_{T-1}, against the last, that steps leave room for."""
    sizes = np.where(
        growth < 1.0, 0.5 * np.log(np.maximum(growth, TINY)), np.log(growth) + _STRICTLY
    )
    logs = np.cumsum(sizes[:-1])
    return np.asarray(np.minimum(logs - logs[-1], _FARTHEST))


def _first_matrices(programme: Programme, logs: Array) -> Array | None:
    """Strictly feasible multiples of the identity; None where sizes would differ too much."""
    if logs.min() < _FAINTEST:
        return None
    matrices = np.exp(logs)[:, None] * np.array([1.0, 0.0, 1.0])
    room = programme.release + float(programme.final @ programme.noise[-1])
    largest = float(np.max(programme.last_maps @ matrices[-1]))
    return np.asarray(matrices * (0.25 * room / largest))
