r"""The optimisation problems of Chien and Li 2024, in arrays.

Shifts a_k after a step tau at which the distance is known bring it to 0:
z_tau = start, z_{k+1} = g_k(z_k) - a_k, z_T = 0, with g_k(z) = z + rise z^order.  Covering a
sensitivity s in the same step, with the best share beta of the noise, costs (s + a)^2.  Any shifts
that end at 0 are valid, and only such are tried.
"""

import math

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate._numerics.search import last_true

_CANDIDATES = 32
_ROUNDS = 4
_HALVINGS = 64
_FARTHEST = 1e60


def least_energies(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    """The least sums of (s_k + a_k)^2 found, for several cases that end together.

    Case i begins `lengths[i]` steps before the end, at distance `starts[i]`; `sensitivities` has a
    row for each case and a column for each step.  At the optimum s_k + a_k falls by g' from step
    to step, so one number, the first, tells all; the last step pays whatever is left.  That
    number is searched; inf where the distance is beyond what shifts can cover.
    """
    result = np.full(starts.size, np.inf)
    near_enough = starts < _FARTHEST
    if near_enough.any():
        with np.errstate(over="ignore", invalid="ignore"):
            solve = _water_filling if order == 1.0 else _searched
            result[near_enough] = solve(
                sensitivities[near_enough], starts[near_enough], lengths[near_enough], rise, order
            )
    return result


def _water_filling(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    """Energies for growth by c: s_k + a_k = max(s_k, x c^-i) in the i-th step, the least x."""
    assert order == 1.0
    steps = sensitivities.shape[1]
    ages = np.arange(steps) - (steps - lengths)[:, None] + 1.0
    weights = np.where(ages > 0.0, np.exp(-ages * math.log1p(rise)), 0.0)
    s = np.where(ages > 0.0, sensitivities, 0.0)
    first = math.exp(-math.log1p(rise))
    low = np.zeros(starts.size)
    # All of it in the first step would do.
    high = up((starts / first + s.max(axis=1)) / first, THOUSANDS_OF_ROUNDINGS)
    hidden = up(starts, THOUSANDS_OF_ROUNDINGS)
    for _ in range(_HALVINGS):
        x = (low + high) / 2.0
        shifts = np.maximum(x[:, None] * weights - s, 0.0)
        enough = np.sum(weights * shifts, axis=1) >= hidden
        low, high = np.where(enough, low, x), np.where(enough, x, high)
    energies = np.sum(np.square(np.maximum(high[:, None] * weights, s)), axis=1)
    return np.asarray(up(energies, THOUSANDS_OF_ROUNDINGS))


def _searched(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    largest = np.maximum(starts + rise * starts**order + sensitivities.max(axis=1), 1e-300)
    low, high = 1e-6 * largest, largest
    best = np.full(starts.size, np.inf)
    rows = np.arange(starts.size)
    for _ in range(_ROUNDS):
        firsts = np.geomspace(low, high, _CANDIDATES, axis=1)
        energies = _energies(sensitivities, starts, lengths, rise, order, firsts)
        near = np.argmin(energies, axis=1)
        best = np.minimum(best, energies[rows, near])
        low = firsts[rows, np.maximum(near - 1, 0)]
        high = firsts[rows, np.minimum(near + 1, _CANDIDATES - 1)]
    return best


def _energies(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float, firsts: Array
) -> Array:
    z = np.repeat(starts[:, None], firsts.shape[1], axis=1)
    multiplier, energies = firsts.copy(), np.zeros(firsts.shape)
    steps = sensitivities.shape[1]
    for k in range(steps):
        begun = (steps - k <= lengths)[:, None]
        sensitivity = sensitivities[:, k, None]
        grown = np.where(begun, z + rise * z**order, z)
        shift = grown if k == steps - 1 else np.clip(multiplier - sensitivity, 0.0, grown)
        energies += np.where(begun, (sensitivity + shift) ** 2, 0.0)
        # Rounded up, so that the shifts suffice.
        left = np.where(shift < grown, up(grown, FEW_ROUNDINGS) - shift, 0.0)
        z = np.where(begun, left, z)
        slope = 1.0 + rise * order * np.where(z > 0.0, z, np.inf) ** (order - 1.0)
        multiplier = np.where(begun, multiplier / slope, multiplier)
    return np.where(np.isnan(energies), np.inf, up(energies, THOUSANDS_OF_ROUNDINGS))


def least_energy_linear(sensitivity: float, start: float, c: float, count: int) -> float:
    r"""min over beta of sum s^2/beta_t + start^2 / sum (1 - beta_t) c^{-2 i}, i = 1..count.

    Convex.  Stationarity is beta_i = min(1, x c^i) with x = (s/start) sum (1 - beta) w, whose
    right side falls as x grows: one root.  The value is taken at that beta.
    """
    if start == 0.0:
        return count * sensitivity**2
    if not start < _FARTHEST:
        return math.inf
    if c == 1.0:
        return (sensitivity * math.sqrt(count) + start / math.sqrt(count)) ** 2
    log_w = -2.0 * math.log(c) * np.arange(1, count + 1)
    top = float(log_w.max())
    roots, scaled = np.exp((log_w - top) / 2.0), start * math.exp(-top / 2.0)
    if not 0.0 < scaled < _FARTHEST:  # the last steps are all that matters, or the first
        return math.inf
    weights = roots * roots

    def beta(x: float) -> Array:
        return np.asarray(np.minimum(1.0, x / np.maximum(roots, 1e-300)))

    def is_above(x: float) -> bool:
        return (sensitivity / scaled) * float(((1.0 - beta(x)) * weights).sum()) > x

    shares = beta(last_true(is_above, 0.0, 1.0))
    left = float(((1.0 - shares) * weights).sum())
    if not (left > 0.0 and float(shares.min()) > 0.0):
        return math.inf
    energy = float((sensitivity**2 / shares).sum() + scaled**2 / left)
    return up(energy, THOUSANDS_OF_ROUNDINGS)
