r"""Shifts for subgradient steps, whose moduli are convex and jump at 0.

A step on convex losses whose subgradients have norm at most C drives two points at a distance z > 0
at most

.. math:: W(z) = \sqrt{r^2 z^2 + 2 r s z + J^2}, \qquad J = 2 \eta C,

apart, with r = 1 - eta lambda >= 0 and s what a participation adds at one point, and two equal
points at most s.  A tangent of a convex function lies below it, so that the linear problems of
`tangents` are no bounds here.  They only suggest shifts: their true cost is found by following the
distance from step to step under W itself, the last step hiding all that is left.  Whatever the
shifts, that is a feasible plan.
"""

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, Array, down, ulps, up
from lastiterate.shifts.minorant import LEAST_MU
from lastiterate.shifts.optimal_shifts import optimal_shifts

_LEVELS = 4
_CELLS = 90
_ROUNDS = 25
_GAIN = 1e-7
_LAST = 3  # participations after which everything may be hidden at once


@dataclass(frozen=True)
class SubgradientSteps:
    """`keep` r, `jump` J, `sensitivity` s (0 where the example takes no part), noise, per step."""

    keep: Array
    jump: Array
    sensitivity: Array
    noise: Array

    def until(self, end: int) -> "SubgradientSteps":
        """The first steps."""
        return SubgradientSteps(
            self.keep[:end], self.jump[:end], self.sensitivity[:end], self.noise[:end]
        )

    def numbers(self, step: int) -> tuple[float, float, float, float]:
        """r, J, s and the noise of a step."""
        return (
            float(self.keep[step]),
            float(self.jump[step]),
            float(self.sensitivity[step]),
            float(self.noise[step]),
        )

    def modulus(self, step: int, distance: float) -> float:
        """How far apart a step drives two points, rounded up."""
        s = float(self.sensitivity[step])
        if distance == 0.0:
            return s
        kept = float(self.keep[step]) * distance
        return up(math.sqrt(kept * (kept + 2.0 * s) + float(self.jump[step]) ** 2), FEW_ROUNDINGS)

    def tangents(self, distances: Array) -> tuple[Array, Array]:
        """Slopes and offsets of the moduli at these distances > 0; below the moduli, no bounds."""
        kept = self.keep * distances
        values = np.sqrt(kept * (kept + 2.0 * self.sensitivity) + self.jump**2)
        slopes = self.keep * (kept + self.sensitivity) / np.maximum(values, 1e-300)
        return slopes, np.maximum(values - slopes * distances, 0.0)


def subgradient_mu(
    steps: SubgradientSteps, *, start: float = 0.0, diameter: float = math.inf
) -> float:
    """mu of the best plan found, rounded up: never above composition from a start of 0."""
    count = steps.noise.size
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(steps.sensitivity > 0.0, steps.sensitivity / steps.noise, 0.0) ** 2
    after = np.append(np.cumsum(alone[::-1])[::-1], 0.0)  # of composition, from each step on
    best = float(after[0]) if start == 0.0 else math.inf
    seen = np.flatnonzero(steps.sensitivity)
    ends = {count, *(int(step) + 1 for step in seen[-_LAST:]), *(int(k) for k in seen[-_LAST:])}
    gridded, path = _on_a_grid(steps, start, diameter)
    best = min(best, gridded)
    for end in sorted(ends - {0}):
        energy = _least_energy(steps.until(end), path[:end], start, diameter)
        best = min(best, energy + float(after[end]))
    slack = ulps(16 * count + 64)
    return max(up(math.sqrt(up(best, slack)), slack), LEAST_MU) if best > 0.0 else 0.0


def _on_a_grid(steps: SubgradientSteps, start: float, diameter: float) -> tuple[float, Array]:
    """The least energy of plans whose distances are on a grid, and the distances of one.

    Backwards: from each distance before a step to the best after it.  A distance between two of
    the grid may be taken for the larger: moduli are non-decreasing.
    """
    count, reach = steps.noise.size, _reach(steps, start)
    top = min(diameter, reach)
    grid = np.unique([0.0, start, *np.geomspace(1e-3 * top, top, _CELLS), *np.linspace(
        0.0, top, _CELLS)])  # fmt: skip
    costs = np.where(grid == 0.0, 0.0, math.inf)
    chosen = np.empty((count, grid.size), dtype=np.intp)
    kernels: dict[tuple[float, float, float, float], Array] = {}
    first, best = int(np.searchsorted(grid, start)), math.inf
    begin, here = 0, first
    for k in range(count - 1, -1, -1):
        one = steps.numbers(k)
        if one not in kernels:
            kernels[one] = _kernel(one, grid, capped=top == diameter)
        totals = kernels[one] + costs
        chosen[k] = np.argmin(totals, axis=1)
        costs = np.take_along_axis(totals, chosen[k][:, None], axis=1)[:, 0]
        if top == diameter and k and costs[-1] < best:
            best, begin, here = float(costs[-1]), k, grid.size - 1
    if costs[first] <= best:
        best, begin, here = float(costs[first]), 0, first
    distances = np.full(count, diameter if top == diameter else top)
    for k in range(begin, count):
        distances[k] = grid[here]
        here = int(chosen[k, here])
    return best, distances


def _kernel(one: tuple[float, float, float, float], grid: Array, *, capped: bool) -> Array:
    """The cost of one step from each distance of the grid to each other one."""
    keep, jump, sensitivity, noise = one
    kept = keep * grid
    reached = np.sqrt(kept * (kept + 2.0 * sensitivity) + jump**2)
    reached = up(np.where(grid == 0.0, sensitivity, reached), FEW_ROUNDINGS)
    shifts = np.maximum(reached[:, None] - grid, 0.0)
    if capped:
        shifts[:, -1] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shifts > 0.0, np.square(shifts / noise), 0.0)


def _reach(steps: SubgradientSteps, start: float) -> float:
    """A distance that two runs never exceed."""
    jumps = float(np.sqrt(np.sum(steps.jump**2)))
    return up(jumps + float(steps.sensitivity.sum()) + start, ulps(steps.noise.size + 16))


def _least_energy(steps: SubgradientSteps, path: Array, start: float, diameter: float) -> float:
    """The least energy found that hides everything in these steps."""
    unit = max(float(steps.jump.max()), float(steps.sensitivity.max()), start)
    if not unit > 0.0 or not float(steps.noise[-1]) > 0.0:
        return math.inf
    top = max(min(_reach(steps, start), diameter), unit)
    levels = np.geomspace(unit / 10.0, top, _LEVELS)
    best = math.inf
    for guess in (path, *(np.full(steps.noise.size, level) for level in levels)):
        distances, before = guess, math.inf
        for _ in range(_ROUNDS):
            slopes, offsets = steps.tangents(np.maximum(distances, 1e-9 * unit))
            plan = optimal_shifts(
                contraction=slopes,
                sensitivity=offsets,
                noise=steps.noise,
                start=start,
                diameter=diameter,
            )
            if not math.isfinite(plan.mu):
                break
            energy, followed = _followed(steps, plan.a, start, diameter)
            best = min(best, energy)
            if not energy < down(before, _GAIN):
                break
            before, distances = energy, followed
    return best


def _followed(
    steps: SubgradientSteps, shifts: Array, start: float, diameter: float
) -> tuple[float, Array]:
    """The energy of these shifts, and the distance before each step; the last hides the rest."""
    distance, energy = start, 0.0
    distances = np.empty(shifts.size)
    listed, noises = shifts.tolist(), steps.noise.tolist()
    for step in range(shifts.size):
        distances[step] = distance
        reached = steps.modulus(step, distance)
        shift = reached if step == shifts.size - 1 else min(listed[step], reached)
        if shift > 0.0:
            if not noises[step] > 0.0:
                return math.inf, distances
            energy += (shift / noises[step]) ** 2
        distance = min(up(reached, ulps(1)) - shift if shift < reached else 0.0, diameter)
    return energy, distances
