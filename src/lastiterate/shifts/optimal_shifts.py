r"""The optimal shifts of the interpolated process, for linear moduli.

Two copies of the run, one on each data set, are joined by a third that starts at one and
ends at the other.  Its distance z from the end is mapped by every step to at most
:math:`c_k z + s_k`; a shift by :math:`a_k` at step k shortens it and costs
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

**Pieces.** Usually one piece is the whole run.  Where the units C_k span more than 260 decades,
which floats cannot hold, the run is cut: see `_plan_in_pieces`.

**Concave moduli.** A modulus of step k is a function with
:math:`|\phi_k(x) - \phi'_k(y)| \le W_k(|x - y|)` for the two data sets' updates.  Those of
smooth, Hoelder-smooth and clipped losses are minima of a few branches

.. math:: W(z) = \text{slope}\, z + \text{rise}\, z^{\text{order}} + \text{offset},
          \qquad 0 < \text{order} \le 1,

so they are concave, and a tangent of any branch lies above all of W: it is a linear modulus, too.
Taking tangents at the distances of a plan gives a linear problem for which that plan is feasible
at the same cost; its optimum is therefore no worse, and the tangents there are taken next.  Every
plan on the way is a valid bound.  The problem is not convex, so several first guesses are followed
and the best end is kept: optimality is local, soundness is not at stake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import (
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    at_least,
    down,
    prefix_sums,
    roundings,
    suffix_products,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.minorant import LEAST_MU, Minorant, convex_minorant, sparse_minorant
from lastiterate.shifts.patterns import mus_of_positions

_MAX_WRITTEN_PASSES = 8
_LEAST_VARIANCE = 1e-200
LEAST_UNIT = 1e-130  # units in [this, 1/this], so that their squares are normal numbers
_NEGLIGIBLE_CONTRACTION = 1e-30
_MAX_STARTS = 500
_FIRST_TANGENTS = 16
_FOLLOWED_GUESSES = 4
_MAX_TANGENT_ROUNDS = 200
_GAIN = 1e-9


@dataclass(frozen=True)
class Shifts:
    """A feasible plan of shifts, and its cost `mu`.

    The plan is written out when it is first looked at.  `optimal_shifts` makes it.

    Parameters
    ----------
    mu : float
        The cost: the last iterate is mu-GDP.

    Examples
    --------
    >>> from lastiterate import optimal_shifts
    >>> plan = optimal_shifts(contraction=0.5, sensitivity=[1.0, 0.0], noise=1.0)
    >>> plan.a.size, plan.z.size, float(plan.z[-1])
    (2, 3, 0.0)
    """

    mu: float
    _written_out: Callable[[], tuple[Array, Array]] = field(repr=False, compare=False)

    @cached_property
    def _plan(self) -> tuple[Array, Array]:
        return self._written_out()

    @property
    def a(self) -> Array:
        """The shift of each step."""
        return self._plan[0]

    @property
    def z(self) -> Array:
        """The distance before the first step and after each; it begins with `start`, ends at 0."""
        return self._plan[1]


def optimal_shifts(
    *,
    contraction: ArrayLike,
    sensitivity: ArrayLike,
    noise: ArrayLike,
    start: float = 0.0,
    diameter: float = math.inf,
) -> Shifts:
    """The plan of shifts that brings the distance down to 0 at the least cost mu.

    Step k maps a distance z to at most contraction[k] z + sensitivity[k]; a shift by a costs
    (a / noise[k])^2, projection caps the distance at `diameter`, and mu^2 is the sum of all costs.
    A step with noise 0 cannot shift; a distance that no later step can remove gives mu = inf.

    **Tight.** The optimum to about 1e-12 relative, except that where the units C_k span more than
    260 decades a past too faint to matter is shifted at once, and a run that expands so far is cut
    where a plan has reached distance 0.

    **Computed as** isotonic regression of the sensitivities, in units normalised so that nothing
    over- or underflows; the shifts are checked to cover every sensitivity and scaled up by what
    rounding left open.  mu is rounded up.

    Parameters
    ----------
    contraction : float or array
        The Lipschitz constant of each step, at least 0.  Numbers and arrays are broadcast to the
        number of steps.
    sensitivity : float or array
        The distance that each step adds: 0 in steps that do not see the example.
    noise : float or array
        The standard deviation of each step's noise.
    start : float
        The distance before the first step.
    diameter : float
        The diameter of the convex set onto which every iterate is projected.

    Returns
    -------
    Shifts
        The plan: its cost `mu`, the shifts `a` and the distances `z`.

    Raises
    ------
    InvalidParameter, InvalidType
        If an argument is negative, no number, or of another length.

    Examples
    --------
    >>> from lastiterate import optimal_shifts
    >>> plan = optimal_shifts(contraction=[1.0, 1.0], sensitivity=[1.0, 0.0], noise=1.0)
    >>> round(plan.mu, 12), plan.a.round(12), plan.z.round(12)
    (0.707106781187, array([0.5, 0.5]), array([0. , 0.5, 0. ]))
    """
    c, s, n = _as_steps(contraction, sensitivity, noise)
    start = _check.number("start", start, at_least=0.0)
    diameter = _check.number("diameter", diameter, above=0.0, infinite=True)
    start = min(start, diameter)
    largest, largest_noise = max(float(s.max()), start), float(n.max())
    if largest == 0.0:
        return Shifts(0.0, lambda: (np.zeros(c.size), np.zeros(c.size + 1)))
    if largest_noise == 0.0:
        return _no_shifts(c, start)
    unit, noise_unit = _unit(largest), _unit(largest_noise)
    if unit != 1.0 or noise_unit != 1.0:
        s, n = np.where(s > 0.0, np.maximum(s / unit, TINY), 0.0), n / noise_unit
    scaled = c, s, n, start / unit, diameter / unit
    pieces = _cheapest_pieces(*scaled)
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    if math.isinf(energy):
        return _no_shifts(c, start)
    slack = _slack(c.size)

    def written_out() -> tuple[Array, Array]:
        shifts, distances = write_out(*scaled, pieces)
        return shifts * up(unit, ulps(slack)), distances * unit

    mu = unit / noise_unit * max(math.sqrt(energy), LEAST_MU)
    return Shifts(at_least(mu, ulps=slack), written_out)


def pattern_mus(
    *,
    contraction: Array,
    sensitivity: Array,
    noise: Array,
    patterns: Iterable[NDArray[np.intp]],
    diameter: float = math.inf,
    period: int | None = None,
) -> list[float]:
    """mu for each of several sets of participating steps (indices from 0) of the same run.

    `sensitivity` is the distance that a participation in each step would add.  With a `period` the
    patterns are every so many steps from each of the first on, and the last step is the release.
    """
    with np.errstate(all="ignore"):
        units = suffix_products(contraction)
        masses, variances = units * sensitivity, np.square(units * noise)
    tame = (
        squares_are_normal(units) and _unit(sensitivity.max()) == 1.0 and _unit(noise.max()) == 1.0
    )
    if tame and period is not None and math.isinf(diameter):
        few = units.size - 1 <= _MAX_WRITTEN_PASSES * period
        if few and masses[:-1].min() > 0.0 and variances.min() > _LEAST_VARIANCE:
            slack = ulps(_slack(units.size))
            return [float(mu) for mu in up(mus_of_positions(masses, variances, period), slack)]
    mus = []
    for pattern in patterns:
        if tame and math.isinf(diameter) and pattern.size and masses[pattern].min() > 0.0:
            energy = sparse_minorant(pattern, masses[pattern], variances).energy
            mus.append(max(at_least(math.sqrt(energy), ulps=_slack(units.size)), LEAST_MU))
        else:
            added = np.zeros(units.size)
            added[pattern] = sensitivity[pattern]
            plan = optimal_shifts(
                contraction=contraction, sensitivity=added, noise=noise, diameter=diameter
            )
            mus.append(plan.mu)
    return mus


def _as_steps(*arguments: ArrayLike) -> tuple[Array, Array, Array]:
    """Contraction, sensitivity and noise, checked and broadcast to the number of steps."""
    names = ("contraction", "sensitivity", "noise")
    arrays = [
        _check.numbers(name, value)
        if np.ndim(value)
        else np.array([_check.number(name, value, at_least=0.0)])
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


def _unit(largest: float) -> float:
    """A unit of length in which squares neither overflow nor underflow."""
    return 1.0 if 1e-9 < largest < 1e9 else largest


def _no_shifts(c: Array, start: float) -> Shifts:
    distances = np.full(c.size + 1, math.inf)
    distances[0] = start
    return Shifts(math.inf, lambda: (np.zeros(c.size), distances))


def _cheapest_pieces(c: Array, s: Array, n: Array, start: float, diameter: float) -> list[Piece]:
    """The best plan over all start times: 0 at `start`, or any later one at the diameter."""
    pieces = plan_without_cap(c, s, n, start)
    if not diameter < math.inf:
        return pieces
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    capped = best_capped_start(c, pieces[-1], diameter, energy)
    return pieces if capped is None else [capped]


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
    """The cheapest plan for these steps; `first` is the contraction of the first of them."""
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
            left, log_left = _distance_without_shifts(c[:begin], s[:begin], start)
            log_unit = math.log(c[begin]) + math.log(units[0])
            contracted = log_left + log_unit < math.log(_NEGLIGIBLE_CONTRACTION)
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


def _distance_without_shifts(c: Array, s: Array, start: float) -> tuple[float, float]:
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
    for _ in range(_MAX_STARTS):
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


def write_out(
    c: Array, s: Array, n: Array, start: float, diameter: float, pieces: list[Piece]
) -> tuple[Array, Array]:
    """The shifts and distances step by step."""
    shifts, distances = np.zeros(c.size), np.zeros(c.size + 1)
    first = pieces[0]
    if first.begin > 0:
        distances[: first.begin] = _path_before(c, s, start, diameter, first.begin)
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


def _path_before(c: Array, s: Array, start: float, diameter: float, upto: int) -> Array:
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


@dataclass(frozen=True)
class Branch:
    """One branch, for every step; all coefficients are at least 0."""

    slope: Array
    rise: Array
    offset: Array
    order: float = 1.0

    def __call__(self, z: Array) -> Array:
        return np.asarray(self.slope * z + self.rise * z**self.order + self.offset)

    def tangent(self, z: Array) -> tuple[Array, Array]:
        """Slope and offset of the tangent at z > 0, rounded up."""
        if self.order == 1.0:
            slope, offset = self.slope + self.rise, self.offset
        else:
            lift = self.rise * z**self.order
            slope = self.slope + self.order * lift / z
            offset = self.offset + (1.0 - self.order) * lift
        return up(slope, ulps(16)), up(offset, ulps(16))


@dataclass(frozen=True)
class Moduli:
    """The least of several branches, step by step."""

    branches: tuple[Branch, ...]

    def __call__(self, z: Array) -> Array:
        return np.asarray(np.min([branch(z) for branch in self.branches], axis=0))

    def tangent(self, z: Array) -> tuple[Array, Array]:
        """The tangent at z > 0 of the branch that is least there."""
        lowest = np.argmin([branch(z) for branch in self.branches], axis=0)
        tangents = [branch.tangent(z) for branch in self.branches]
        slopes, offsets = ([t[i] for t in tangents] for i in (0, 1))
        return np.choose(lowest, slopes), np.choose(lowest, offsets)


def concave_shifts(
    moduli: Moduli, noise: Array, *, start: float = 0.0, diameter: float = math.inf
) -> Shifts:
    """The best plan of shifts that was found for concave moduli."""
    steps = noise.size
    sensitivities = moduli(np.zeros(steps))
    largest = max(float(sensitivities.max()), start)
    if largest == 0.0:
        return optimal_shifts(
            contraction=np.ones(steps), sensitivity=0.0, noise=noise, diameter=diameter
        )
    # Small enough for a tangent to add nothing visible at 0, where some plans stay.
    least = largest * 1e-12 ** (1.0 / max(0.2, min(branch.order for branch in moduli.branches)))

    def solve(distances: Array) -> Shifts:
        slope, offset = moduli.tangent(np.maximum(distances, least))
        return optimal_shifts(
            contraction=slope, sensitivity=offset, noise=noise, start=start, diameter=diameter
        )

    guesses = [
        solve(np.full(steps, level)) for level in _first_distances(moduli, largest, diameter, steps)
    ]
    guesses.sort(key=lambda plan: plan.mu)
    return min(
        (_follow_tangents(plan, solve) for plan in guesses[:_FOLLOWED_GUESSES]),
        key=lambda plan: plan.mu,
    )


def _first_distances(moduli: Moduli, largest: float, diameter: float, steps: int) -> Array:
    """Distances at which to take the first tangents: from one sensitivity to the farthest reach."""
    reach, ceiling = largest, min(diameter, 1e9 * largest)
    while reach < ceiling:
        further = reach + steps * float((moduli(np.full(steps, reach)) - reach).max())
        if not further > 2.0 * reach:
            break
        reach = min(further, ceiling)
    top = min(max(reach, 2.0 * largest), diameter)
    return np.geomspace(min(0.01 * largest, 0.5 * top), top, _FIRST_TANGENTS)


def _follow_tangents(plan: Shifts, solve: Callable[[Array], Shifts]) -> Shifts:
    """The end of a sequence of plans, each from tangents at the distances of the one before."""
    for _ in range(_MAX_TANGENT_ROUNDS):
        if not math.isfinite(plan.mu):
            return plan
        better = solve(plan.z[:-1])
        if not better.mu < down(plan.mu, _GAIN):
            return plan if plan.mu <= better.mu else better
        plan = better
    return plan
