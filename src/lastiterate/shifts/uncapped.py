"""Plans without a cap, in pieces whose units a float can hold.

Usually one piece is the whole run.  Where the units (products of contractions) span more
than 260 decades, it is cut: see `_plan_in_pieces`.
"""

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, prefix_sums, suffix_products, suffix_sums
from lastiterate.shifts.minorant import Minorant, convex_minorant

LEAST_UNIT = 1e-130  # units in [this, 1/this], so that their squares are normal numbers
_NEGLIGIBLE = 1e-30


@dataclass(frozen=True)
class Piece:
    """Steps [begin, begin + units.size) with a plan of their own, from distance `start` on."""

    begin: int
    start: float
    units: Array
    masses: Array
    variances: Array
    minorant: Minorant


def plan_without_cap(c: Array, s: Array, n: Array, start: float) -> list[Piece]:
    """Plans for all steps without a cap, in order; together they cover what matters."""
    with np.errstate(all="ignore"):
        units = suffix_products(c)
    if squares_are_normal(units):
        noise = units * n
        return [piece_from(0, start, c[0], units, units * s, np.square(noise, out=noise))]
    return _plan_in_pieces(np.maximum(c, 1e-300), s, n, start)


def squares_are_normal(units: Array) -> bool:
    """Whether no square of a unit over- or underflows, nor of the inverse of one."""
    return bool(units.min() >= LEAST_UNIT and units.max() <= 1.0 / LEAST_UNIT)


def piece_from(
    begin: int, start: float, first: float, units: Array, masses: Array, variances: Array
) -> Piece:
    if start > 0.0:
        masses = masses.copy()
        masses[0] += start * first * units[0]
    minorant = convex_minorant(masses, variances)
    return Piece(begin, start, units, masses, variances, minorant)


def _plan_in_pieces(c: Array, s: Array, n: Array, start: float) -> list[Piece]:
    """Plans in pieces, found from the end, where the units span too many decades for one piece.

    Where the run contracts, the distance at the beginning of a piece is its start, and there are no
    earlier shifts.  Where it expands, shifts remove all distance at the beginning of a block of the
    piece's own plan, as the optimum (all but) does.
    """
    pieces: list[Piece] = []
    end = c.size
    while end > 0:
        begin, units = _units_before(c, end)
        left, contracted = start, begin == 0
        if begin > 0 and c[begin] * units[0] < 1.0:
            left, log_left = _forward(c[:begin], s[:begin], start)
            log_unit = math.log(c[begin]) + math.log(units[0])
            contracted = log_left + log_unit < math.log(_NEGLIGIBLE)
        piece = piece_from(
            begin,
            left if contracted else 0.0,
            c[begin],
            units,
            units * s[begin:end],
            (units * n[begin:end]) ** 2,
        )
        if contracted:
            pieces.append(piece)
            break
        cut = _first_step_without_distance(piece)
        pieces.append(
            piece_from(
                begin + cut,
                0.0,
                1.0,
                piece.units[cut:],
                piece.masses[cut:],
                piece.variances[cut:],
            )
        )
        end = begin + cut
    return pieces[::-1]


def _units_before(c: Array, end: int) -> tuple[int, Array]:
    """The longest stretch ending at `end` whose units stay in range, and those units."""
    reach = 1024
    while True:
        low = max(0, end - reach)
        with np.errstate(all="ignore"):
            units = suffix_products(c[low:end])
        inside = (units >= LEAST_UNIT) & (units <= 1.0 / LEAST_UNIT)
        if not inside.all():
            first = int(np.flatnonzero(~inside)[-1]) + 1
            return low + first, units[first:]
        if low == 0:
            return 0, units
        reach *= 4


def _first_step_without_distance(piece: Piece) -> int:
    """A block's first step, away from the beginning of the piece, where the missing past shows."""
    starts = piece.minorant.block_starts
    clear = starts[starts >= piece.units.size // 8]
    return int(clear[0]) if clear.size else int(starts[-1]) if starts.size else 0


def _forward(c: Array, s: Array, start: float) -> tuple[float, float]:
    """The distance after these steps without shifts, rounded up, and its logarithm."""
    logs = np.log(c)
    ahead = np.append(np.cumsum(logs[::-1])[::-1][1:], 0.0)
    with np.errstate(divide="ignore"):
        terms = np.append(np.log(s) + ahead, math.log(start) + logs.sum() if start else -math.inf)
    top = float(terms.max())
    if top == -math.inf:
        return 0.0, -math.inf
    log_left = top + math.log(float(np.exp(terms - top).sum())) + 1e-3
    return (math.exp(log_left) if log_left < 700.0 else math.inf), log_left


def write_out(
    c: Array, s: Array, n: Array, start: float, diameter: float, pieces: list[Piece]
) -> tuple[Array, Array]:
    """The shifts and distances step by step."""
    shifts, distances = np.zeros(c.size), np.zeros(c.size + 1)
    first = pieces[0]
    if first.begin > 0:
        distances[: first.begin] = _forward_path(c, s, start, diameter, first.begin)
        distances[first.begin] = first.start
    for piece in pieces:
        end = piece.begin + piece.units.size
        own = piece.variances * piece.minorant.slopes(piece.units.size)
        shifts[piece.begin : end] = own / piece.units
        left = _remaining_distances(piece.masses * piece.minorant.scale, own)
        distances[piece.begin + 1 : end] = left / piece.units[:-1]
    distances[0] = start
    return shifts, distances


def _remaining_distances(masses: Array, shifts: Array) -> Array:
    """Masses minus shifts up to each step but the last, by the side with less to cancel."""
    before, after = prefix_sums(masses)[:-1], suffix_sums(shifts)[1:]
    from_start = before - prefix_sums(shifts)[:-1]
    from_end = after - suffix_sums(masses)[1:]
    return np.maximum(np.where(before < after, from_start, from_end), 0.0)


def _forward_path(c: Array, s: Array, start: float, diameter: float, upto: int) -> Array:
    """Distances before the first shift: the diameter, or the run's own where there is none."""
    path = np.full(upto, diameter)
    if math.isinf(diameter):
        position = np.cumsum(np.log(np.maximum(c[: upto - 1], 1e-300)))
        with np.errstate(divide="ignore"):
            added = np.logaddexp.accumulate(
                np.append(math.log(start) if start else -math.inf, np.log(s[: upto - 1]) - position)
            )
        path[1:] = np.exp(np.minimum(position + added[1:], 700.0))
    path[0] = start
    return path
