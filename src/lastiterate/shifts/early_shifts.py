r"""Shifts before the last participation: noise that short steps have kept hides it, too.

A step of :math:`\eta M < 1` keeps at least :math:`l = 1 - \eta M` of the noise drawn before it.  So
a participation of sensitivity s in step t may be replaced by smaller ones in the steps before it,
along what it is predicted to change.  With :math:`\theta_k \ge 0` of it in step k,
:math:`\theta_t = 1`, the per-step sensitivities are

.. math:: s'_k = s \big( |\theta_k - a\theta_{k-1}| + (h + c\kappa)\,\theta_{k-1} \big),
          \qquad a = \tfrac{c + l}{2},\quad h = \tfrac{c - l}{2},\quad \kappa = \Lambda n R / s,

and any plan of shifts p for these is valid, but for a probability :math:`N e^{-q^2/2}`, if
:math:`R \ge \sqrt D + q + \max_k p_k/n_k`.  Here the change that the example makes in step t is
:math:`\Lambda`-Lipschitz with values in a space of D dimensions, and N counts the steps with
:math:`\theta_k > 0` before t (`docs/tightness.md#short-steps`).

**The cut.** Let all steps be alike up to t.  The last j steps are kept for the last participation,
those before for all others.  With :math:`l' = l - c\kappa` and shifts proportional to
:math:`l'^{\,t-k}` before t and to :math:`c^{-(k-t)}` from t on,
:math:`\theta_k - a\theta_{k-1} \ge 0` throughout, and

.. math:: \mu^2 = \mu_{\text{others}}^2 + s^2 \Big/ \Big( \sum_{i=1}^{j-1-\text{tail}} l'^{\,2i}
          + \sum_{i=0}^{\text{tail}} c^{-2i} + \text{release}\; c^{-2\,\text{tail}} \Big)

in units of a step's noise.  The others see no noise on release, for that is after the cut.  Every j
gives a valid plan, and the least mu counts.  No shift exceeds mu, so that R is taken from a mu that
the plan turns out not to exceed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._numerics.powers import log_of, logs_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, IntArray, down, ulps, up
from lastiterate.shifts.minorant import LEAST_MU
from lastiterate.shifts.patterns import (
    NOTHING_SPENT,
    Participations,
    Spent,
    mus_of_few,
    mus_with_spent_noise,
    variance_left,
)

FAILURE = 1e-15  # far below every usual delta; 1e-9 would lower mu by a thousandth at the most
_MAX_SINGLE_LENGTHS = 24  # window lengths that are all tried
_LENGTH_RATIO = 1.06  # of longer ones
_NEGLIGIBLE_FOLDS = 20.0  # e-folds of noise, beyond which a window need not reach


@dataclass(frozen=True, kw_only=True)
class ShortSteps:
    """Equal steps, each shorter than 1/smoothness, that keep noise drawn before them.

    Distances are in units of the noise of a step.

    Parameters
    ----------
    steps : int
        The number of steps, T.
    gap : float
        1 - c, rounded down.
    curvature : float
        1 - l, the step size times the smoothness, rounded up.  From 1 on nothing is kept.
    ratio : float
        The sensitivity of a participation, rounded up.
    drift : float
        How much of itself the change that a participation makes may vary per unit of noise,
        rounded up: the step size times the smoothness without the penalty, over the sensitivity of
        the averaged gradient times the batch size, times the noise of the averaged gradient.
    dimension : int
        D, of the space in which a participation changes a step.
    failure : float
        The probability that delta has to be charged with.
    """

    steps: int
    gap: float
    curvature: float
    ratio: float
    drift: float
    dimension: int
    failure: float = FAILURE

    def radius(self, largest_shift: ArrayLike, *, dimension: int | None = None) -> Array:
        """R, rounded up, for shifts in one step that add up to `largest_shift` at the most.

        At most one participation is hidden by earlier steps, so that there are at most T pairs.
        """
        space = self.dimension if dimension is None else dimension
        q = math.sqrt(2.0 * math.log(max(self.steps, 1) / self.failure))
        whole = math.sqrt(space) + q + np.asarray(largest_shift, dtype=np.float64)
        return np.asarray(up(whole, ulps(16)))

    def lost(
        self, largest_shift: ArrayLike, *, times: ArrayLike = 1.0, dimension: int | None = None
    ) -> Array:
        """1 - l', rounded up: what a step may lose of earlier noise; at least 1 is everything.

        `times` is the sensitivity of the participation that is hidden early, in those of one.
        """
        times = np.asarray(times, dtype=np.float64)
        kappa = np.full(np.broadcast_shapes(times.shape, np.shape(largest_shift)), np.inf)
        radius = self.radius(largest_shift, dimension=dimension)
        np.divide(self.drift * radius, times, out=kappa, where=times > 0.0)
        return np.asarray(up(self.curvature + (1.0 - self.gap) * kappa, ulps(16)))


def early_mus(
    steps: ShortSteps,
    participations: list[Participations],
    *,
    release_in_steps: float = 0.0,
    spent: Spent = NOTHING_SPENT,
    dimension: int | None = None,
    largest_shift: ArrayLike = 0.0,
) -> Array:
    """mu, rounded up, if the last of `participations` may be hidden by noise before it, too.

    It holds together with delta larger by `steps.failure`, and never exceeds the mu of later shifts
    alone.  Participations, release and spent noise are as in `mus_of_few`; the sensitivity is
    included.

    Parameters
    ----------
    steps : ShortSteps
        The run of equal steps.
    participations : list of Participations
        As for `mus_of_few`; those of the last entry are hidden early, its `more` are not.
    release_in_steps : float
        The variance of the noise on release, in steps.
    spent : Spent
        Noise of the last steps that is not there to be used.
    dimension : int, optional
        D, if that of the last participation is not `steps.dimension`.
    largest_shift : float or array
        What other shifts in the same noise may add to those of one step, in units of its noise.
    """
    unit = mus_of_few(
        gap=steps.gap, participations=participations, release_in_steps=release_in_steps, spent=spent
    )
    with np.errstate(over="ignore"):
        mus = np.asarray(up(unit * steps.ratio, ulps(8)))
    if not (steps.curvature < 1.0 and 0.0 <= steps.gap <= steps.curvature):
        return mus
    cuts = _cuts(steps, participations, spent)
    if cuts is None:
        return mus
    last, other_shifts = participations[-1], np.asarray(largest_shift, dtype=np.float64)
    times, tail = np.asarray(last.times, dtype=np.float64), np.asarray(last.tail)
    scale = np.exp(logs_of_powers(2.0 * log_of(steps.gap), tail))
    later = variance_left(log_of(steps.gap), tail, -1, spent.steps, spent.share) + release_in_steps
    for _ in range(2):  # the second time with a smaller largest shift
        lost = steps.lost(other_shifts + mus, times=times, dimension=dimension)
        earlier = _earlier_noise(steps, cuts.lengths, lost, spent.steps - 1 - tail, spent.share)
        energies = np.square(times) * scale / (later + scale * earlier)
        energies = np.where(cuts.allowed, energies + np.square(cuts.older), np.inf)
        found = np.maximum(np.sqrt(energies.min(axis=0)), LEAST_MU) * steps.ratio
        mus = np.minimum(mus, up(found, MILLIONS_OF_ROUNDINGS))
    return mus


@dataclass(frozen=True)
class _Cuts:
    """Windows by how many steps they have before the participation, one in each row."""

    lengths: IntArray
    allowed: NDArray[np.bool_]
    older: Array  # mu of the other participations, for sensitivities and noise of 1


def _cuts(steps: ShortSteps, participations: list[Participations], spent: Spent) -> _Cuts | None:
    """The windows to try, and what each leaves for other participations; None if there are none."""
    last, earlier = participations[-1], participations[:-1]
    tail, more = np.asarray(last.tail, dtype=np.int64), np.asarray(last.more, dtype=np.int64)
    room = np.asarray(steps.steps - 1 - tail)
    if earlier:
        room = np.minimum(room, np.asarray(earlier[-1].tail) - tail - 1)
    elif np.any(more > 0):
        room = np.where(more > 0, last.period - 1, room)
        times = np.where(more > 0, last.times, 0.0)
        before = Participations(tail + last.period, times, np.maximum(more - 1, 0), last.period)
        earlier = [before]
    shape = np.broadcast_shapes(*(np.shape(x) for one in participations for x in _fields(one)))
    lengths = _window_lengths(min(int(room.max(initial=0)), _longest_window(steps.curvature)))
    if not lengths.size:
        return None
    lengths = lengths.reshape(-1, *(1,) * len(shape))
    older = np.zeros_like(lengths, dtype=np.float64)
    if earlier:
        written = tuple(tuple(x.tobytes() for x in _broadcast(one, shape)) for one in earlier)
        periods = tuple(one.period for one in earlier)
        ends = np.broadcast_to(tail, shape).tobytes()
        older = _older_mus(steps.gap, shape, written, periods, ends, lengths.tobytes(), spent)
    return _Cuts(lengths, lengths <= room, older)


def _fields(one: Participations) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    return one.tail, one.times, one.more


def _broadcast(one: Participations, shape: tuple[int, ...]) -> tuple[IntArray, Array, IntArray]:
    tail, times, more = (np.broadcast_to(np.asarray(x), shape) for x in _fields(one))
    return tail.astype(np.int64), times.astype(np.float64), more.astype(np.int64)


@lru_cache(maxsize=64)
def _older_mus(
    gap: float,
    shape: tuple[int, ...],
    written: tuple[tuple[bytes, bytes, bytes], ...],
    periods: tuple[int, ...],
    ends: bytes,
    lengths: bytes,
    spent: Spent,
) -> Array:
    """mu of the other participations in a run that ends before each window; no release noise.

    It does not depend on the noise, so that searches over it share the result.
    """
    kept = np.frombuffer(lengths, np.int64).reshape(-1, *(1,) * len(shape))
    kept = kept + 1 + np.frombuffer(ends, np.int64).reshape(shape)
    earlier = [
        Participations(
            np.maximum(np.frombuffer(tail, np.int64).reshape(shape) - kept, 0),
            np.frombuffer(times).reshape(shape),
            np.frombuffer(more, np.int64).reshape(shape),
            period,
        )
        for (tail, times, more), period in zip(written, periods, strict=True)
    ]
    left = np.maximum(spent.steps - kept, 0)
    mus = mus_with_spent_noise(gap, earlier, 0.0, left, spent.share)
    mus.setflags(write=False)
    return mus


def _longest_window(curvature: float) -> int:
    """A window length beyond which hardly any noise is kept."""
    return int(min(_NEGLIGIBLE_FOLDS / max(curvature, 1e-12) + 1.0, 1e12))


def _window_lengths(most: int) -> IntArray:
    """Numbers of steps before the participation: all small ones, then a geometric series."""
    if most <= _MAX_SINGLE_LENGTHS:
        return np.arange(1, most + 1, dtype=np.int64)
    count = math.ceil(math.log(most / _MAX_SINGLE_LENGTHS) / math.log(_LENGTH_RATIO))
    longer = np.rint(np.geomspace(_MAX_SINGLE_LENGTHS, most, count + 1)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(1, _MAX_SINGLE_LENGTHS, dtype=np.int64), longer]))


def _earlier_noise(
    steps: ShortSteps, lengths: IntArray, lost: Array, spent_before: IntArray, share: float
) -> Array:
    """The sum of l'^(2i) over the window's steps before the participation, rounded down.

    Where noise up to the participation, or of its own step, is spent, theta_k >= a theta_(k-1)
    needs (a - l') l' <= (1 - share)(1 - l'^2).
    """
    kept = lost < 1.0
    log_kept = np.log1p(-np.where(kept, lost, 0.5))
    whole = _powers_from_one(log_kept, lengths)
    if share > 0.0:
        l_prime, some = np.exp(log_kept), np.clip(spent_before, 0, lengths)
        centre = 1.0 - (steps.curvature + steps.gap) / 2.0
        may = up((centre - l_prime) * l_prime, MILLIONS_OF_ROUNDINGS) <= (1.0 - share) * (
            1.0 - l_prime * l_prime
        )
        whole = whole - share * up(_powers_from_one(log_kept, some), MILLIONS_OF_ROUNDINGS)
        kept = kept & (may | (np.asarray(spent_before) < 0))
    return np.where(kept, np.maximum(down(whole, MILLIONS_OF_ROUNDINGS), 0.0), 0.0)


def _powers_from_one(log_kept: Array, counts: IntArray) -> Array:
    """l'^2 + .. + l'^(2 count)."""
    squared = 2.0 * log_kept
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = np.exp(squared) * np.expm1(squared * counts) / np.expm1(squared)
    return np.where(squared < 0.0, sums, np.asarray(counts, dtype=np.float64))
