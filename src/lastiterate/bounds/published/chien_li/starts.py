r"""The least of Chien and Li's programme over every start, for patterns of participations.

From a start :math:`\tau` at the distance :math:`D_\tau` the programme costs
:math:`\sum (s_t + a_t)^2`.  Without :math:`a \ge 0` its optimum is, for a growth of c in each step,

.. math:: \frac{\big(D_\tau + \sum_{t \ge \tau} c^{-(t-\tau+1)} s_t\big)^2}
                {\sum_{t \ge \tau} c^{-2(t-\tau+1)}},

which is below every plan, as is :math:`\sum s_t^2`; Hoelder gradients let distances grow by c = 1
at least.  So starts are solved in the order of these lower bounds, until no other can be better.
"""

import numpy as np

from lastiterate._numerics.rounding import Array, down
from lastiterate.bounds import quantities
from lastiterate.bounds.published.chien_li import distances
from lastiterate.bounds.published.chien_li.shift_programme import least_energies
from lastiterate.run.training_run import TrainingRun

_AT_ONCE = 6
_MOST_ROUNDS = 24
_GAIN = 1e-8  # for which no other start is solved


def least_over_starts(run: TrainingRun, late: Array, walked: Array, composed: Array) -> Array:
    """The least energy of each pattern over starts in the last steps, at most `composed`.

    `late` are the participations of the last steps, one row for each pattern, and `walked` the
    distances before these steps.
    """
    s = float(quantities.sensitivities(run)[0])
    rates = distances.growth(run)
    below = _lower_bounds(s * late, walked, rates)
    best = composed.copy()
    rows = np.arange(len(late))[:, None]
    for _ in range(_MOST_ROUNDS):
        chosen = np.argpartition(below, min(_AT_ONCE, below.shape[1]) - 1, axis=1)[:, :_AT_ONCE]
        worth = np.take_along_axis(below, chosen, axis=1) < down(best, _GAIN)[:, None]
        patterns, columns = np.nonzero(worth)
        if not patterns.size:
            break
        starts = chosen[patterns, columns]
        lengths = late.shape[1] - starts
        longest = int(lengths.max())
        energies = least_energies(
            s * late[patterns, -longest:], walked[patterns, starts], lengths, *rates
        )
        np.minimum.at(best, patterns, energies)
        below[rows, chosen] = np.inf
    return best


def least_energy(run: TrainingRun, patterns: Array) -> Array:
    """The least energy of each pattern, a row of steps, over all starts."""
    s = float(quantities.sensitivities(run)[0])
    longest = min(run.steps, distances.LONGEST)
    walked = distances.forward_distances(run, patterns)[:, -longest:]
    # From the very start nothing but the participations is to be hidden.
    composed = s * s * patterns.sum(axis=1)
    return least_over_starts(run, patterns[:, -longest:], walked, composed)


def _lower_bounds(sensitivities: Array, walked: Array, growth: tuple[float, float]) -> Array:
    """Energies that no plan from each of the starts is below."""
    rise, order = growth
    c = 1.0 + rise if order == 1.0 else 1.0
    mass, variance, alone = np.zeros(len(sensitivities)), 0.0, np.zeros(len(sensitivities))
    below = np.empty(sensitivities.shape)
    for k in range(sensitivities.shape[1] - 1, -1, -1):
        mass = (mass + sensitivities[:, k]) / c
        variance = (variance + 1.0) / (c * c)
        alone = alone + sensitivities[:, k] ** 2
        with np.errstate(over="ignore"):
            below[:, k] = np.maximum((walked[:, k] + mass) ** 2 / variance, alone)
    if order == 1.0:
        below[:, 1:][_later_at_the_cap(sensitivities, walked)] = np.inf
    return below


def _later_at_the_cap(sensitivities: Array, walked: Array) -> Array:
    """Which starts but the first have the same distance as the one before, and all it has to hide.

    With linear growth the earlier one is better.  Let E(z) be the least energy from a distance z
    at the later start.  The earlier costs at most (c D - z)^2 + E(z) for any z <= D; since
    E'(z) >= 2 z/(c^-2 + c^-4 + ..) = 2 (c^2 - 1) z, that is at most E(D) for z = D/c.
    """
    same = walked[:, 1:] == walked[:, :-1]
    return np.asarray(same & (sensitivities[:, :-1] == 0.0) & (walked[:, 1:] > 0.0))
