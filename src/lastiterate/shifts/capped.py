"""Plans that begin where the distance is last as large as the domain."""

import math

import numpy as np

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, down, suffix_sums
from lastiterate.shifts.minorant import Minorant
from lastiterate.shifts.uncapped import Piece, piece_from

_MOST_STARTS = 500


def best_capped_start(c: Array, last: Piece, diameter: float, best: float) -> Piece | None:
    """The cheapest plan that begins at distance `diameter` inside the last piece.

    Branch and bound over start times.  Weak duality bounds every start from below: first
    by a single chord, then, from each start that was solved, by a chord to the end of its
    first block followed by its other blocks.  Both are O(T) for all starts together, and
    the second is exact for every start whose first block ends there too, so that few
    starts are solved.  A bound that is off by rounding costs tightness, never soundness.
    """
    steps = np.arange(last.units.size, dtype=np.float64)
    entry = diameter * c[last.begin :] * last.units
    mass, variance = suffix_sums(last.masses), suffix_sums(last.variances)
    with np.errstate(all="ignore"):
        below = np.where(variance > 0.0, (entry + mass) ** 2 / variance, math.inf)
    if last.begin == 0:
        below[0] = math.inf  # the run itself starts there, at its own distance
    chosen = None
    for _ in range(_MOST_STARTS):
        begin = int(np.argmin(below))
        if not below[begin] < down(best, THOUSANDS_OF_ROUNDINGS):
            break
        piece = piece_from(
            last.begin + begin,
            diameter,
            c[last.begin + begin],
            last.units[begin:],
            last.masses[begin:],
            last.variances[begin:],
        )
        if piece.minorant.energy < best:
            best, chosen = piece.minorant.energy, piece
        # Postponed masses would be counted both in the first block and after it.
        if not piece.minorant.postponed:
            bound = _bound_from(piece.minorant, begin, steps, entry, mass, variance)
            below = np.maximum(below, bound)
        below[begin] = math.inf
    return chosen


def _bound_from(
    solved: Minorant, begin: int, steps: Array, entry: Array, mass: Array, variance: Array
) -> Array:
    """A lower bound on the energy of every start before the end of the first block solved.

    For increasing slopes G, sum 2 G m - v G^2 is below the optimum.  G is constant up to
    the end of the first block (at the best value not above what follows), then as solved.
    """
    more = solved.block_starts.size > 1
    end = begin + int(solved.block_starts[1]) if more else steps.size
    ceiling = solved.block_slopes[1] if more else math.inf
    tail = float(solved.block_energies[1:].sum()) / solved.scale**2
    here_mass = entry + mass - (mass[end] if more else 0.0)
    here_variance = variance - (variance[end] if more else 0.0)
    with np.errstate(all="ignore"):
        slope = np.minimum(here_mass / here_variance, ceiling)
        bound = (2.0 * here_mass - slope * here_variance) * slope + tail
    return np.where((steps < end) & np.isfinite(bound), bound, 0.0)
