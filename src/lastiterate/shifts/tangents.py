"""Optimal shifts for concave moduli, by tangents.

A tangent of a concave modulus is a linear modulus, and linear problems are solved exactly
(`shifts`).  Taking tangents at the distances of a plan gives a linear problem for which that
plan is feasible at the same cost; its optimum is therefore no worse, and the tangents
there are taken next.  Every plan on the way is a valid bound.  The problem is not convex,
so several first guesses are followed and the best end is kept: optimality is local,
soundness is not at stake.
"""

import math
from collections.abc import Callable

import numpy as np

from lastiterate._numerics.rounding import Array, down
from lastiterate.shifts.moduli import Moduli
from lastiterate.shifts.optimal_shifts import Shifts, optimal_shifts

_LEVELS = 16
_FOLLOWED = 4
_ROUNDS = 200
_GAIN = 1e-9


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

    guesses = [solve(np.full(steps, level)) for level in _levels(moduli, largest, diameter, steps)]
    guesses.sort(key=lambda plan: plan.mu)
    return min((_follow(plan, solve) for plan in guesses[:_FOLLOWED]), key=lambda plan: plan.mu)


def _follow(plan: Shifts, solve: Callable[[Array], Shifts]) -> Shifts:
    for _ in range(_ROUNDS):
        if not math.isfinite(plan.mu):
            return plan
        better = solve(plan.z[:-1])
        if not better.mu < down(plan.mu, _GAIN):
            return plan if plan.mu <= better.mu else better
        plan = better
    return plan


def _levels(moduli: Moduli, largest: float, diameter: float, steps: int) -> Array:
    """Distances at which to take the first tangents: from one sensitivity to the farthest reach."""
    reach, ceiling = largest, min(diameter, 1e9 * largest)
    while reach < ceiling:
        further = reach + steps * float((moduli(np.full(steps, reach)) - reach).max())
        if not further > 2.0 * reach:
            break
        reach = min(further, ceiling)
    top = min(max(reach, 2.0 * largest), diameter)
    return np.geomspace(min(0.01 * largest, 0.5 * top), top, _LEVELS)
