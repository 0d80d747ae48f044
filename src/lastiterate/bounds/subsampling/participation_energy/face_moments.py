r"""Exponential moments of the energy of random participations, without contraction.

As in `energy_with_release` the faces of the convex minorant that are steeper than g are truncated
at that slope, and the release shifts the excess.  Only :math:`E\,e^{s q}` is needed, so the
exponential formula needs no transform, and all terms are positive.

**Longer steps.**  m steps may count as one, with all their participations at its end: these are
shifted from the next step on, and after the last step by the release, of which as much as m steps
is reserved for that.  (The noise of the first m steps is not used.)  The law of the faces does not
need increments to be 0 or 1.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate.bounds.subsampling.participation_energy.block_shifts import binomial_window
from lastiterate.bounds.subsampling.participation_energy.energy_with_release import without_ties

MOST_STEPS = 100_000  # beyond which factorials cost digits
_MOST_LONG_STEPS = 2_000
_PARTS = 12  # long steps in the release
_EXCESS = (1.1, 2.2)  # of the slope over the mean, by trial
_NEGLIGIBLE = 1e-15  # an excess so rare counts as infinite
_FOLDS = 50.0  # counts rarer than e^-50 are left out
_STEEP_FOLDS = 40.0  # longer steep faces are rarer than e^-40
_LARGEST_EXPONENT = 600.0


class EnergyMoments(NamedTuple):
    """log E e^(s q) for each rate s, except with probability `lost`.

    The root of the energy may be larger than that of q by `extra_mu`.
    """

    logs: Array
    lost: float
    extra_mu: float = 0.0


def face_moments(steps: int, probability: float, release: float, rates: Array) -> EnergyMoments:
    """Moments of the energy over `steps` steps and a release worth `release`; inf if huge."""
    length = max(math.ceil(steps / _MOST_LONG_STEPS), math.floor(release / _PARTS), 1)
    if length > 1 and not length < release:
        return EnergyMoments(np.full(rates.size, np.inf), 0.0)
    length = min(length, steps)
    number = math.ceil(steps / length)  # more steps never cost less
    used_release = release - length if length > 1 else release
    walk = _Walk(number, length, probability)
    slopes = [
        without_ties(number, slope * length) / length
        for excess in _EXCESS
        if (slope := probability * (1.0 + excess / math.sqrt(probability * max(used_release, 1.0))))
        < 0.9
    ]
    if not (slopes and used_release > 0.0):
        return EnergyMoments(np.full(rates.size, np.inf), 0.0)
    flat = _flat_moments(slopes, walk, rates)
    every = [_at_slope(slope, walk, used_release, rates, flat[k]) for k, slope in enumerate(slopes)]
    # Each holds except for its own rare event.
    logs = np.asarray(np.min([one.logs for one in every], axis=0), dtype=np.float64)
    return EnergyMoments(logs, sum(one.lost for one in every))


class _Walk(NamedTuple):
    """A number of long steps, their length, and the probability of a participation in a step."""

    number: int
    length: int
    probability: float


def _at_slope(
    slope: float, walk: _Walk, release: float, rates: Array, flat: Array
) -> EnergyMoments:
    steep, lost = _steep_masses(slope, walk)
    ages = walk.length * np.arange(steep.shape[0])[:, None]
    participations = np.arange(steep.shape[1], dtype=np.float64)
    excess = np.maximum(participations - slope * ages, 0.0)
    # The second term shifts each participation as it comes.
    with np.errstate(over="ignore"):  # hardly any noise on release is not used
        costs = np.minimum(slope**2 * ages + np.square(excess) / release, participations)
    used = steep > 0.0
    order = np.argsort(-costs[used])
    rare = order[np.cumsum(steep[used][order]) <= _NEGLIGIBLE]
    kept = np.where(used, steep, 0.0)
    kept[tuple(index[rare] for index in np.nonzero(used))] = 0.0
    where = np.nonzero(kept)
    logs = np.full(rates.size, np.inf)
    few = rates * float(costs[where].max()) < _LARGEST_EXPONENT
    with np.errstate(over="ignore"):
        terms = kept[where] * np.exp(rates[few, None] * costs[where])
        sums = np.sum(terms * flat[walk.number - where[0]][:, few].T, axis=1)
    logs[few] = np.log(up(sums, MILLIONS_OF_ROUNDINGS * walk.number))
    return EnergyMoments(logs, lost + 2.0 * _NEGLIGIBLE)


def _steep_masses(slope: float, walk: _Walk) -> tuple[Array, float]:
    """[k, N]: P(N_j > slope j for all j <= k, N_k = N), and the lost probability."""
    p = walk.probability
    rate = slope * math.log(slope / p) + (1.0 - slope) * math.log((1.0 - slope) / (1.0 - p))
    rate *= walk.length
    longest = min(walk.number, math.ceil(_STEEP_FOLDS / rate))
    one = binomial_window(walk.length, p)
    chances = np.exp(one.logs)
    step = np.zeros(int(one.values[-1]) + 1)
    step[one.values.astype(np.int64)] = chances
    most = int(binomial_window(longest * walk.length, p).values[-1])
    participations = np.arange(most + 1)
    masses = np.zeros((longest + 1, most + 1))
    masses[0, 0] = 1.0
    for k in range(1, longest + 1):
        row = np.convolve(masses[k - 1], step)[: most + 1]
        masses[k, : row.size] = np.where(
            participations[: row.size] > slope * walk.length * k, row, 0.0
        )
    lost = longest * (one.lost + math.exp(-_FOLDS) * 1e3)
    if longest < walk.number:
        lost += math.exp(-_STEEP_FOLDS) / -math.expm1(-rate)
    return masses, lost


def _flat_moments(slopes: list[float], walk: _Walk, rates: Array) -> Array:
    """[j, k, i]: E e^(rates[i] cost) over k long steps, no face above slopes[j]; inf if huge."""
    steps = walk.length * np.arange(1, walk.number + 1, dtype=np.int64)[:, None]
    mean = walk.probability * steps
    first = np.maximum(np.floor(mean - np.sqrt(2.0 * _FOLDS * mean)) - 1.0, 0.0)
    width = int(np.max(np.floor(max(slopes) * steps) - first)) + 1
    numbers: Array = np.asarray(first + np.arange(width), dtype=np.float64)
    costs = np.square(numbers) / steps
    logs = _log_chances(steps, numbers, walk.probability)
    within = [numbers <= slope * steps for slope in slopes]
    faces = np.full((len(slopes), walk.number, rates.size), np.inf)
    for i, rate in enumerate(rates):
        exponents = rate * costs + logs
        if not float(np.max(exponents, where=within[-1], initial=-np.inf)) < _LARGEST_EXPONENT:
            continue
        # Numbers so large that they do not matter are left out.
        needed = np.any((exponents > -_FOLDS) & (numbers <= steps), axis=0)
        columns = int(np.flatnonzero(needed)[-1]) + 1
        terms = np.exp(np.minimum(exponents[:, :columns], _LARGEST_EXPONENT))
        for j, mask in enumerate(within):
            faces[j, :, i] = np.sum(terms, axis=1, where=mask[:, :columns])
        # Fewer participations than the first number cost no more than that.
        faces[:, :, i] += math.exp(-_FOLDS) * (np.exp(rate * costs[:, 0]) + width)
    faces = up(faces, MILLIONS_OF_ROUNDINGS)
    result = np.empty((len(slopes), walk.number + 1, rates.size))
    result[:, 0] = 1.0
    with np.errstate(over="ignore"):
        for k in range(1, walk.number + 1):
            before = result[:, k - 1 :: -1][:, :k]
            result[:, k] = np.einsum("hij,hij->hj", faces[:, :k], before) / k
    return result


def _log_chances(steps: NDArray[np.int64], numbers: Array, probability: float) -> Array:
    """The logarithms of binomial probabilities; those of impossible numbers are arbitrary."""
    factorials = gammaln(np.arange(int(steps[-1, 0]) + 1) + 1.0)
    some = np.minimum(numbers, steps).astype(np.int64)
    logs = factorials[steps] - factorials[some] - factorials[steps - some]
    return np.asarray(logs + xlogy(some, probability) + xlog1py(steps - some, -probability))
