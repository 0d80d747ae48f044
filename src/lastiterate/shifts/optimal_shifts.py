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
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import (
    TINY,
    Array,
    at_least,
    roundings,
    suffix_products,
    ulps,
    up,
)
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.capped import best_capped_start
from lastiterate.shifts.minorant import LEAST_MU, sparse_minorant
from lastiterate.shifts.sparse_patterns import mus_of_positions
from lastiterate.shifts.uncapped import Piece, plan_without_cap, squares_are_normal, write_out

_FEW_PASSES = 8
_LEAST_VARIANCE = 1e-200


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
    >>> from lastiterate.shifts.optimal_shifts import optimal_shifts
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
    >>> from lastiterate.shifts.optimal_shifts import optimal_shifts
    >>> plan = optimal_shifts(contraction=[1.0, 1.0], sensitivity=[1.0, 0.0], noise=1.0)
    >>> round(plan.mu, 12), plan.a.round(12), plan.z.round(12)
    (0.707106781187, array([0.5, 0.5]), array([0. , 0.5, 0. ]))
    """
    c, s, n = _steps(contraction, sensitivity, noise)
    start = _check.number("start", start, at_least=0.0)
    diameter = _check.number("diameter", diameter, above=0.0, infinite=True)
    start = min(start, diameter)
    largest, largest_noise = max(float(s.max()), start), float(n.max())
    if largest == 0.0:
        return Shifts(0.0, lambda: (np.zeros(c.size), np.zeros(c.size + 1)))
    if largest_noise == 0.0:
        return _impossible(c, start)
    unit, noise_unit = _unit(largest), _unit(largest_noise)
    if unit != 1.0 or noise_unit != 1.0:
        s, n = np.where(s > 0.0, np.maximum(s / unit, TINY), 0.0), n / noise_unit
    scaled = c, s, n, start / unit, diameter / unit
    pieces = _cheapest(*scaled)
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    if math.isinf(energy):
        return _impossible(c, start)
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
        few = units.size - 1 <= _FEW_PASSES * period
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


def _steps(*arguments: ArrayLike) -> tuple[Array, Array, Array]:
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


def _impossible(c: Array, start: float) -> Shifts:
    distances = np.full(c.size + 1, math.inf)
    distances[0] = start
    return Shifts(math.inf, lambda: (np.zeros(c.size), distances))


def _cheapest(c: Array, s: Array, n: Array, start: float, diameter: float) -> list[Piece]:
    """The best plan over all start times: 0 at `start`, or any later one at the diameter."""
    pieces = plan_without_cap(c, s, n, start)
    if not diameter < math.inf:
        return pieces
    energy = math.fsum(piece.minorant.energy for piece in pieces)
    capped = best_capped_start(c, pieces[-1], diameter, energy)
    return pieces if capped is None else [capped]
