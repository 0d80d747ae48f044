r"""The optimal shifts of the interpolated process, for linear moduli.

Two copies of the run, one on each data set, are joined by a third that starts at one and
ends at the other.  Between them stands a distance z that every step maps to at most
:math:`c_k z + s_k`; paying :math:`a_k` of it at step k costs
:math:`(a_k / \text{noise}_k)^2`, and projection onto a set of diameter D caps it:

.. math:: y_k = c_k z_{k-1} + s_k, \quad 0 \le a_k \le y_k, \quad
          z_k = \min(y_k - a_k, D), \quad z_T = 0 .

Then the last iterate is mu-GDP with :math:`\mu^2 = \sum_k (a_k/\text{noise}_k)^2` (Bok, Su
and Altschuler 2024, Theorem C.3, whose proof needs only the modulus).  Any feasible plan is
a valid bound; this module finds the least.

===================  ============  =======================================================
symbol               argument      meaning
===================  ============  =======================================================
:math:`c_k`          contraction   Lipschitz constant of step k, any number >= 0
:math:`s_k`          sensitivity   how far the two data sets' steps k differ, in parameters
:math:`n_k`          noise         std of the noise of step k, in parameters
:math:`z_0`          start         distance before the first step
:math:`D`            diameter      of the convex set projected onto
:math:`C_k`          (derived)     product of c_j over j > k: step k's unit in final units
===================  ============  =======================================================
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._numerics import guards
from lastiterate._numerics.directed import ULP, at_least
from lastiterate._numerics.exact import Array
from lastiterate._numerics.scan import prefix_sums, roundings, suffix_products, suffix_sums
from lastiterate.engine.minorant import Minorant, convex_minorant, minorant_of_arrivals
from lastiterate.errors import InvalidParameter

_LEAST_UNIT = 1e-130  # C_k in [this, 1/this], so that its square is a normal number
_NEGLIGIBLE = 1e-30
_MOST_STARTS = 500


@dataclass(frozen=True)
class Shifts:
    """A feasible plan and its price.

    `mu` is the price; `a[k]` is paid in step k + 1; `z[k]` is the distance after k steps, so
    that `z` has one entry more, begins with `start` and ends with 0.  The plan is written
    out when it is first looked at.
    """

    mu: float
    _written_out: Callable[[], tuple[Array, Array]] = field(repr=False, compare=False)

    @cached_property
    def _plan(self) -> tuple[Array, Array]:
        return self._written_out()

    @property
    def a(self) -> Array:
        return self._plan[0]

    @property
    def z(self) -> Array:
        return self._plan[1]


@dataclass(frozen=True)
class _Piece:
    """Steps [begin, begin + units.size) paid for by themselves, from distance `start` on."""

    begin: int
    start: float
    units: Array
    masses: Array
    variances: Array
    minorant: Minorant


def optimal_shifts(
    *,
    contraction: ArrayLike,
    sensitivity: ArrayLike,
    noise: ArrayLike,
    start: float = 0.0,
    diameter: float = math.inf,
) -> Shifts:
    """The least mu and a plan that attains it.

    Scalars and arrays are broadcast to the number of steps.  A step with noise 0 cannot
    pay; a distance that no later step can pay gives mu = inf.

    **Tight.** The optimum of the problem above to about 1e-12 relative, except that where
    the units C_k span more than 260 decades a past too faint to matter is charged as it
    arrives, and a run that expands so far is cut where a plan settles.

    **Computed as** isotonic regression of the arrivals, in units normalised so that
    nothing over- or underflows; the payments are checked to cover every arrival and scaled
    up by what rounding left open.  mu is rounded up.

    Examples
    --------
    >>> plan = optimal_shifts(contraction=[1.0, 1.0], sensitivity=[1.0, 0.0], noise=1.0)
    >>> round(plan.mu, 12), plan.a.round(12), plan.z.round(12)
    (0.707106781187, array([0.5, 0.5]), array([0. , 0.5, 0. ]))
    """
    c, s, n = _steps(contraction, sensitivity, noise)
    start = guards.number("start", start, at_least=0.0)
    diameter = guards.number("diameter", diameter, above=0.0, infinite=True)
    start = min(start, diameter)
    largest, loudest = max(float(s.max()), start), float(n.max())
    if largest == 0.0:
        return Shifts(0.0, lambda: (np.zeros(c.size), np.zeros(c.size + 1)))
    if loudest == 0.0:
        return _unpayable(c, start)
    unit, noise_unit = _unit(largest), _unit(loudest)
    if unit != 1.0 or noise_unit != 1.0:
        s, n = s / unit, n / noise_unit
    scaled = c, s, n, start / unit, diameter / unit
    pieces = _cheapest(*scaled)
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    if math.isinf(energy):
        return _unpayable(c, start)
    slack = _slack(c.size)

    def written_out() -> tuple[Array, Array]:
        payments, distances = _plan(*scaled, pieces)
        return payments * (unit * (1.0 + slack * ULP)), distances * unit

    return Shifts(at_least(unit / noise_unit * math.sqrt(energy), ulps=slack), written_out)


def pattern_mus(
    *,
    contraction: Array,
    sensitivity: Array,
    noise: Array,
    patterns: Iterable[NDArray[np.intp]],
    diameter: float = math.inf,
) -> list[float]:
    """mu for each of several sets of participating steps (indices from 0) of the same run.

    `sensitivity` is what a participation in each step would bring.
    """
    with np.errstate(all="ignore"):
        units = suffix_products(contraction)
        in_range = _in_range(units)
        masses, variances = units * sensitivity, np.square(units * noise)
    tame = in_range and _unit(sensitivity.max()) == 1.0 and _unit(noise.max()) == 1.0
    mus = []
    for pattern in patterns:
        if tame and math.isinf(diameter) and pattern.size and masses[pattern].min() > 0.0:
            energy = minorant_of_arrivals(pattern, masses[pattern], variances).energy
            mus.append(at_least(math.sqrt(energy), ulps=_slack(units.size)))
        else:
            arriving = np.zeros(units.size)
            arriving[pattern] = sensitivity[pattern]
            plan = optimal_shifts(
                contraction=contraction, sensitivity=arriving, noise=noise, diameter=diameter
            )
            mus.append(plan.mu)
    return mus


def _steps(*arguments: ArrayLike) -> tuple[Array, Array, Array]:
    names = ("contraction", "sensitivity", "noise")
    arrays = [
        guards.numbers(name, value)
        if np.ndim(value)
        else np.array([guards.number(name, value, at_least=0.0)])
        for name, value in zip(names, arguments, strict=True)
    ]
    length = max(array.size for array in arrays)
    for name, array, value in zip(names, arrays, arguments, strict=True):
        if array.size not in (1, length) or array.size == 0:
            raise InvalidParameter(name, value, must_be=f"a number or of length {length}")
    c, s, n = (np.broadcast_to(array, (length,)) for array in arrays)
    return c, s, n


def _slack(steps: int) -> int:
    """Ulps by which mu is widened for the roundings of units, masses, variances and sums."""
    return 8 * roundings(steps) + 64


def _in_range(units: Array) -> bool:
    return bool(units.min() >= _LEAST_UNIT and units.max() <= 1.0 / _LEAST_UNIT)


def _unit(largest: float) -> float:
    """What to measure in, so that squares neither over- nor underflow."""
    return 1.0 if 1e-9 < largest < 1e9 else largest


def _unpayable(c: Array, start: float) -> Shifts:
    distances = np.full(c.size + 1, math.inf)
    distances[0] = start
    return Shifts(math.inf, lambda: (np.zeros(c.size), distances))


def _cheapest(c: Array, s: Array, n: Array, start: float, diameter: float) -> list[_Piece]:
    """The best plan over all start times: 0 at `start`, or any later one at the diameter."""
    pieces = _settle(c, s, n, start)
    if not diameter < math.inf:
        return pieces
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    capped = _best_capped_start(c, pieces[-1], diameter, energy)
    return pieces if capped is None else [capped]


def _best_capped_start(c: Array, last: _Piece, diameter: float, best: float) -> _Piece | None:
    """The cheapest plan that begins at distance `diameter` inside the last piece.

    Branch and bound over start times.  Weak duality bounds every start from below: first
    by a single chord, then, from each start that was solved, by a chord to the end of its
    first block followed by its other blocks.  Both are O(T) for all starts together, and
    the second is exact for every start whose first block ends there too, so that few
    starts are solved.  A bound that is off by rounding costs tightness, never soundness.
    """
    steps = np.arange(last.units.size)
    entry = diameter * c[last.begin :] * last.units
    mass, variance = suffix_sums(last.masses), suffix_sums(last.variances)
    with np.errstate(all="ignore"):
        below = np.where(variance > 0.0, (entry + mass) ** 2 / variance, math.inf)
    if last.begin == 0:
        below[0] = math.inf  # the run itself starts there, at its own distance
    chosen = None
    for _ in range(_MOST_STARTS):
        begin = int(np.argmin(below))
        if not below[begin] < best * (1.0 - 1e-12):
            break
        piece = _piece(
            last.begin + begin,
            diameter,
            c[last.begin + begin],
            last.units[begin:],
            last.masses[begin:],
            last.variances[begin:],
        )
        if piece.minorant.energy < best:
            best, chosen = piece.minorant.energy, piece
        below = np.maximum(below, _bound_from(piece.minorant, begin, steps, entry, mass, variance))
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


def _settle(c: Array, s: Array, n: Array, start: float) -> list[_Piece]:
    """Plans for all steps without a cap, in order; together they cover what matters."""
    with np.errstate(all="ignore"):
        units = suffix_products(c)
    if _in_range(units):
        return [_piece(0, start, c[0], units, units * s, np.square(units * n))]
    return _settle_in_pieces(np.maximum(c, 1e-300), s, n, start)


def _piece(
    begin: int, start: float, first: float, units: Array, masses: Array, variances: Array
) -> _Piece:
    if start > 0.0:
        masses = masses.copy()
        masses[0] += start * first * units[0]
    minorant = convex_minorant(masses, variances)
    return _Piece(begin, start, units, masses, variances, minorant)


def _settle_in_pieces(c: Array, s: Array, n: Array, start: float) -> list[_Piece]:
    """The same where the units span too many decades for one piece, from the end backwards.

    Where the run contracts, what is left of the distance at the beginning of a piece is
    its start, and nothing earlier is paid.  Where it expands, it settles: all is paid off
    at the beginning of a block of the piece's own plan, where the optimum (all but) does.
    """
    pieces: list[_Piece] = []
    end = c.size
    while end > 0:
        begin, units = _units_before(c, end)
        left, contracted = start, begin == 0
        if begin > 0 and c[begin] * units[0] < 1.0:
            left, log_left = _forward(c[:begin], s[:begin], start)
            contracted = log_left + math.log(c[begin] * units[0]) < math.log(_NEGLIGIBLE)
        piece = _piece(
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
        cut = _settling_step(piece)
        pieces.append(
            _piece(
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
        inside = (units >= _LEAST_UNIT) & (units <= 1.0 / _LEAST_UNIT)
        if not inside.all():
            first = int(np.flatnonzero(~inside)[-1]) + 1
            return low + first, units[first:]
        if low == 0:
            return 0, units
        reach *= 4


def _settling_step(piece: _Piece) -> int:
    """A block's first step, clear of the beginning, where missing the past shows."""
    starts = piece.minorant.block_starts
    clear = starts[starts >= piece.units.size // 8]
    return int(clear[0]) if clear.size else int(starts[-1]) if starts.size else 0


def _forward(c: Array, s: Array, start: float) -> tuple[float, float]:
    """The unpaid distance after these steps, rounded up, and its logarithm."""
    logs = np.log(c)
    ahead = np.append(np.cumsum(logs[::-1])[::-1][1:], 0.0)
    with np.errstate(divide="ignore"):
        terms = np.append(np.log(s) + ahead, math.log(start) + logs.sum() if start else -math.inf)
    top = float(terms.max())
    if top == -math.inf:
        return 0.0, -math.inf
    log_left = top + math.log(float(np.exp(terms - top).sum())) + 1e-3
    return (math.exp(log_left) if log_left < 700.0 else math.inf), log_left


def _plan(
    c: Array, s: Array, n: Array, start: float, diameter: float, pieces: list[_Piece]
) -> tuple[Array, Array]:
    """Payments and distances step by step."""
    payments, distances = np.zeros(c.size), np.zeros(c.size + 1)
    first = pieces[0]
    if first.begin > 0:
        distances[: first.begin] = _forward_path(c, s, start, diameter, first.begin)
        distances[first.begin] = first.start
    for piece in pieces:
        end = piece.begin + piece.units.size
        paid = piece.variances * piece.minorant.slopes(piece.units.size)
        payments[piece.begin : end] = paid / piece.units
        left = _left_to_pay(piece.masses * piece.minorant.scale, paid)
        distances[piece.begin + 1 : end] = left / piece.units[:-1]
    distances[0] = start
    return payments, distances


def _left_to_pay(masses: Array, paid: Array) -> Array:
    """Arrived minus paid after each step but the last, by the side with less to cancel."""
    arrived, owed = prefix_sums(masses)[:-1], suffix_sums(paid)[1:]
    from_start = arrived - prefix_sums(paid)[:-1]
    from_end = owed - suffix_sums(masses)[1:]
    return np.maximum(np.where(arrived < owed, from_start, from_end), 0.0)


def _forward_path(c: Array, s: Array, start: float, diameter: float, upto: int) -> Array:
    """Unpaid distances before the first payment: the diameter, or tracked where there is none."""
    path = np.full(upto, diameter)
    if math.isinf(diameter):
        position = np.cumsum(np.log(c[: upto - 1]))
        with np.errstate(divide="ignore"):
            arrivals = np.logaddexp.accumulate(
                np.append(math.log(start) if start else -math.inf, np.log(s[: upto - 1]) - position)
            )
        path[1:] = np.exp(np.minimum(position + arrivals[1:], 700.0))
    path[0] = start
    return path
