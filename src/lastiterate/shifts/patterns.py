r"""The optimal shifts for many patterns at once, each of few participations in equal steps.

In final units a participation `tail` steps before the end has mass :math:`c^{tail}`, and the steps
from it up to the next one the variance :math:`\sum c^{2\tau}` over their own tails: isotonic
regression of a few blocks, written out as :math:`g_i = \max_{a \le i} \min_{b \ge i}` of the mass
of the blocks a to b over their variance.  Participations at equal distances before all others
share one block, since for :math:`c \le 1` their slopes fall with time.

Of the noise of the last steps a share may be spent on something else; what is left is then the
variance of these steps.  Where steps are not alike, the same holds of the masses and variances that
they have.

`least_energies` is for many patterns in any steps: a row is a pattern, a column a stretch of steps,
where what arrives does so at its first step, and the noise of all its steps can hide it.  Masses
and variances are in final units, as in `minorant`.  The greatest convex minorant of a row is found
from its end: the first face of the columns from j on is the one of the least slope, and ends where
the minorant of later columns begins.  A run may begin at any column with the distance that the
domain allows (`entries`): earlier shifts are then wasted, and cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._numerics.powers import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    Array,
    prefix_sums,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.shifts.minorant import LEAST_MU

_Hashable = tuple[bytes, tuple[int, ...]]


@dataclass(frozen=True)
class Participations:
    """A participation `tail` steps before the end, and `more` before it, `period` apart.

    Its sensitivity is `times` that of a step.
    """

    tail: ArrayLike
    times: ArrayLike = 1.0
    more: ArrayLike = 0
    period: int = 1


@dataclass(frozen=True)
class Spent:
    """A share of the noise of the last `steps` that is not there to be used."""

    steps: int
    share: float


NOTHING_SPENT = Spent(0, 0.0)


def mus_of_few(
    *,
    gap: float,
    participations: list[Participations],
    release_in_steps: float = 0.0,
    spent: Spent = NOTHING_SPENT,
) -> Array:
    """mu for sensitivities and noise of 1, rounded up; tails must not rise along the list.

    Only the first of `participations` may have others before it, and these must be older than the
    steps whose noise is spent.  1 - `gap` is the contraction, at most 1; noise on release counts as
    so many steps.
    """
    settings = tuple(
        (_hashable(one.tail, np.int64), _hashable(one.times), _hashable(one.more), one.period)
        for one in participations
    )
    return _mus(gap, settings, release_in_steps, spent)


def _hashable(values: ArrayLike, kind: type = np.float64) -> _Hashable:
    """Numbers that can be looked up."""
    array: NDArray[Any] = np.asarray(values, dtype=kind)
    return array.tobytes(), array.shape


def _as_array(values: _Hashable, kind: type = np.float64) -> Array:
    data, shape = values
    return np.asarray(np.frombuffer(data, dtype=kind).reshape(shape))


@lru_cache(maxsize=1024)
def _mus(
    gap: float,
    settings: tuple[tuple[_Hashable, _Hashable, _Hashable, int], ...],
    release_in_steps: float,
    spent: Spent,
) -> Array:
    """The cached result of `mus_of_few`: noise levels that differ by a factor share it."""
    participations = [
        Participations(_as_array(tail, np.int64), _as_array(times), _as_array(more), period)
        for tail, times, more, period in settings
    ]
    mus = mus_with_spent_noise(gap, participations, release_in_steps, spent.steps, spent.share)
    mus.setflags(write=False)
    return mus


def mus_with_spent_noise(
    gap: float,
    participations: list[Participations],
    release_in_steps: float,
    spent_steps: ArrayLike,
    share: float,
) -> Array:
    """`mus_of_few` without its cache, where a share of several numbers of last steps is spent."""
    log_c, spent_steps = log_of(gap), np.asarray(spent_steps)
    tails = np.broadcast_arrays(*(np.asarray(one.tail) for one in participations))
    masses = [
        np.asarray(one.times) * _powers(log_c, tail)
        for one, tail in zip(participations, tails, strict=True)
    ]
    ends = [*tails[1:], np.full_like(tails[0], -1)]
    variances = [
        variance_left(log_c, tail, end, spent_steps, share)
        for tail, end in zip(tails, ends, strict=True)
    ]
    variances[-1] = variances[-1] + release_in_steps
    first = participations[0]
    if np.any(first.more):
        if np.any(tails[0] + 1 < spent_steps):
            raise ValueError("noise is spent before the first of several participations")
        masses.insert(
            0, np.asarray(first.times) * _earlier_masses(log_c, tails[0] + first.period, first)
        )
        span = np.asarray(first.more, dtype=np.float64) * first.period
        variances.insert(0, _powers(2 * log_c, tails[0] + 1) * sums_of_powers(2 * log_c, span))
    mus = np.maximum(np.sqrt(_energies(masses, variances)), LEAST_MU)  # squares underflow
    return np.asarray(up(mus, MILLIONS_OF_ROUNDINGS))


def variance_left(
    log_c: float, tail: Array, end: ArrayLike, spent_steps: ArrayLike, share: float
) -> Array:
    """The variance, in final units, of the steps from `tail` to just before `end`.

    `share` of the noise of the last `spent_steps` is spent.
    """
    end = np.asarray(end)
    whole = np.maximum(end + 1, np.minimum(spent_steps, tail + 1))
    older = _powers(2 * log_c, whole) * sums_of_powers(2 * log_c, tail + 1 - whole)
    part = _powers(2 * log_c, end + 1) * sums_of_powers(2 * log_c, whole - end - 1)
    return np.asarray(older + (1.0 - share) * part)


def _powers(log_c: float, exponents: Array) -> Array:
    return np.exp(logs_of_powers(log_c, exponents))


def _earlier_masses(log_c: float, nearest: Array, participations: Participations) -> Array:
    """c^nearest + c^(nearest + period) + .., as many as there are more."""
    epoch = participations.period * log_c
    count = np.asarray(participations.more, dtype=np.float64)
    return np.asarray(_powers(log_c, nearest) * sums_of_powers(epoch, count))


def mus_of_positions(masses: Array, variances: Array, period: int) -> Array:
    """mu, not rounded up yet, of each position first seen in one of the first `period` steps.

    After that it is seen every `period` steps.  Masses and variances are in final units, step by
    step, all above 0; the last variance is that of the release.  For few passes: time and memory
    grow with their square.
    """
    steps = variances.size - 1
    epochs = [variances[first : first + period] for first in range(0, steps, period)]
    epochs[-1] = variances[(len(epochs) - 1) * period :]
    cut = min(steps - (len(epochs) - 1) * period, period)
    mus = [_mus_seen_alike(masses, epochs, slice(0, cut), period)]
    if cut < period and len(epochs) > 1:
        epochs[-2:] = [np.concatenate(epochs[-2:])]
        mus.append(_mus_seen_alike(masses, epochs, slice(cut, period), period))
    return np.concatenate(mus)


def _mus_seen_alike(masses: Array, epochs: list[Array], those: slice, period: int) -> Array:
    """mu of positions seen in every epoch; steps after the last full epoch are part of the last."""
    participations = [masses[k * period : (k + 1) * period][those] for k in range(len(epochs))]
    # The variance of an epoch after a position, and of the next one before it: nothing cancels.
    left = [suffix_sums(epoch)[those] for epoch in epochs]
    until = [np.append(0.0, prefix_sums(epoch))[those] for epoch in epochs[1:]]
    owned = [a + b for a, b in zip(left, [*until, np.zeros(1)], strict=True)]
    return np.maximum(np.sqrt(_energies(participations, owned)), LEAST_MU)


def _energies(masses: list[Array], variances: list[Array]) -> Array:
    """The energy of the isotonic regression of these blocks, for many patterns at once."""
    count = len(masses)
    slopes = [
        [_slope(masses[a:b], variances[a:b]) for b in range(a + 1, count + 1)] for a in range(count)
    ]
    # From the block a on, the least slope of those that reach block i.
    least = [list(accumulate(reversed(row), np.minimum))[::-1] for row in slopes]
    rates = (reduce(np.maximum, (least[a][i - a] for a in range(i + 1))) for i in range(count))
    terms = (variance * np.square(rate) for variance, rate in zip(variances, rates, strict=True))
    return np.asarray(reduce(np.add, terms))


def _slope(masses: list[Array], variances: list[Array]) -> Array:
    """The slope of these blocks; inf where they have no noise."""
    mass, variance = reduce(np.add, masses), reduce(np.add, variances)
    slope = np.full(np.broadcast_shapes(np.shape(mass), np.shape(variance)), np.inf)
    return np.asarray(np.divide(mass, variance, out=slope, where=variance > 0.0))


@dataclass(frozen=True)
class LeastEnergies:
    """The least energy of each row: from its start, from a cap, and after composition."""

    from_start: Array
    from_cap: Array
    composed: Array


def least_energies(
    masses: Array,
    variances: Array,
    starts: Array,
    *,
    entries: Array | None = None,
    composed: Array | None = None,
) -> LeastEnergies:
    """The least energies that hide the masses of each row, rounded up; inf where none do.

    `starts` has for each row the mass before its first column; `entries` the mass, in place of all
    earlier ones, of a run that begins at a column: at its first column it is not used.  `composed`
    is what it costs to hide all that arrives before a column at once, so that nothing is left.
    """
    rows, columns = masses.shape
    later = np.zeros((rows, columns + 1))  # the energy of the columns from here on
    capped = np.full(rows, np.inf)
    first = np.zeros(rows)
    for j in range(columns - 1, -1, -1):
        mass = np.cumsum(masses[:, j:], axis=1)
        variance = np.cumsum(variances[:, j:], axis=1)
        later[:, j] = _energies_from(mass, variance, later[:, j + 1 :])
        if j == 0:
            first = _energies_from(mass + starts[:, None], variance, later[:, 1:])
        elif entries is not None:
            entered = _energies_from(mass + entries[:, j, None], variance, later[:, j + 1 :])
            capped = np.minimum(capped, entered)
    rest = later[:, 0] if composed is None else np.min(later[:, :-1] + composed, axis=1)
    slack = ulps(32 * columns + 64)
    return LeastEnergies(*(up(found, slack) for found in (first, capped, rest)))


def _energies_from(mass: Array, variance: Array, later: Array) -> Array:
    """The energy of a first face of the least slope and of the columns after it."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slopes = np.where(variance > 0.0, mass / variance, np.inf)
        ends = np.argmin(slopes, axis=1)[:, None]
        slope = np.take_along_axis(slopes, ends, axis=1)[:, 0]
        energy = slope * np.take_along_axis(mass, ends, axis=1)[:, 0]
    total = energy + np.take_along_axis(later, ends, axis=1)[:, 0]
    # Where there is no noise at all, nothing can be hidden, and nothing may have to be.
    silent = variance[:, -1] <= 0.0
    return np.where(silent, np.where(mass[:, -1] > 0.0, np.inf, 0.0), total)
