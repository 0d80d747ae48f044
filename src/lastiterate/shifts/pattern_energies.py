r"""The least energies of many patterns of participations at once, for linear moduli.

A row is a pattern, a column a stretch of steps: what arrives does so at its first step, and the
noise of all its steps can hide it.  Masses and variances are in final units, as in `minorant`.
The greatest convex minorant of a row is found from its end: the first face of the columns from j
on is the one of the least slope, and ends where the minorant of later columns begins.

A run may begin at any column with the distance that the domain allows (`entries`): earlier
shifts are then wasted, and cost nothing.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, ulps, up


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
        later[:, j] = _from_here(mass, variance, later[:, j + 1 :])
        if j == 0:
            first = _from_here(mass + starts[:, None], variance, later[:, 1:])
        elif entries is not None:
            entered = _from_here(mass + entries[:, j, None], variance, later[:, j + 1 :])
            capped = np.minimum(capped, entered)
    rest = later[:, 0] if composed is None else np.min(later[:, :-1] + composed, axis=1)
    slack = ulps(32 * columns + 64)
    return LeastEnergies(*(up(found, slack) for found in (first, capped, rest)))


def _from_here(mass: Array, variance: Array, later: Array) -> Array:
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
