r"""Exponential moments of what random participations cost, with contraction.

In each of the steps before the end the example takes part with probability p, independently; a
participation of age j has shrunk to :math:`c^j`, the noise of that age to :math:`c^{2j}`, and noise
on release is worth h steps.  Let :math:`U_A(z)` be the logarithm of :math:`E\,e^{s q}`, where q is
the least energy that pays the distance z, left when the participations of age A and more have
come, and all later ones.

**Convex.** The least energy is jointly convex in z and in what arrives, so :math:`U_A` is convex
and increasing: between two points it lies below the chord.

**Backwards.** With m more steps, and any payment :math:`x \le c^m z` from the noise of
these,

.. math:: U_{A+m}(z) \le \min_x \frac{s x^2}{c^2 + .. + c^{2m}} +
          \log E\,e^{U_A(c^m z - x + N)} .

What arrives, :math:`\sum_{i<m} c^i V_i`, may be replaced by a variable that is larger in convex
order: each term by one that is 1 with probability :math:`p c^i`, and their sum by a binomial one of
the same mean (Hoeffding 1956), rounded to a grid with its mean kept.

Payments that know the past only save too much, or too little, for what is yet to come.  So of the
last steps the participations are counted beforehand (`counted`).

Everything is a sum of positive terms, so there is no delta too small.
"""

import math
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up
from lastiterate.bounds.subsampling.participation_energy.block_shifts import (
    Value,
    at_the_end,
    blocks,
    grid_of_distances,
    went_back,
)
from lastiterate.bounds.subsampling.participation_energy.counted_moments import (
    Counted,
    steps_counted,
)

_MEMORY = 45.0  # memories; what is older is e^-45 of the whole


class Moments(NamedTuple):
    """log E e^(s q), one for each rate s, but with probability `lost`.

    The root of the energy may be larger than that of q by `older`.
    """

    logs: Array
    lost: float
    older: float = 0.0


def steered_moments(
    log_c: float,
    steps: int,
    probability: float,
    release: float,
    rates: Array,
    cap: float = math.inf,
) -> Moments:
    """By payments that know the past, and how often the example comes in the last steps.

    Nothing left unpaid ever exceeds `cap`.
    """
    span = min(steps, math.ceil(_MEMORY / -log_c)) if log_c < 0.0 else steps
    grid = grid_of_distances(log_c, span, probability)
    last = steps_counted(log_c, span, probability, grid[1])
    counted = Counted(grid, rates, release, probability, last) if last else None
    value: Value = at_the_end(rates, release)
    least = np.full(rates.size, np.inf)
    lost = 0.0
    for block in blocks(log_c, span, release):
        if counted is not None and block.age + block.steps > last:
            lost += counted.lost(block.age)
            value, counted = counted.or_better(value, block.age), None
        value, missed = went_back(value, block, probability, grid, rates)
        lost += missed
        if counted is not None:
            counted.go_back(block)
        if cap < span:
            least = np.minimum(least, value(np.array([cap + 1.0]))[:, 0])
    if counted is not None:
        lost += counted.lost(span)
        value = counted.or_better(value, span)
    least = np.minimum(least, value(np.zeros(1))[:, 0])
    older = 0.0
    if span < steps:
        kept = power(log_c, span) / math.sqrt(sum_of_powers(2.0 * log_c, span) + release)
        older = up(kept * sum_of_powers(log_c, steps - span), MILLIONS_OF_ROUNDINGS)
    return Moments(up(least, MILLIONS_OF_ROUNDINGS) + MILLIONS_OF_ROUNDINGS, lost, older)
