"""The exponential moments of what random participations cost: the least that is known."""

import math
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import log_of
from lastiterate.bounds.subsampling.participation_energy.contracting_moments import (
    Moments,
    steered_moments,
)
from lastiterate.bounds.subsampling.participation_energy.face_moments import (
    MOST_STEPS,
    face_moments,
)

_LARGEST_GAP = 0.9  # more contraction is not used
_LITTLE = 0.5  # memories, up to which it may be better to ignore that anything is forgotten


def energy_moments(
    *,
    gap: float,
    steps: int,
    probability: float,
    release: float,
    rates: tuple[float, ...],
    cap: float = math.inf,
) -> Moments:
    """log E e^(s q) of the least energy q, for arrivals and noise of 1.

    The release is worth so many steps' noise.  Nothing left unpaid ever exceeds `cap` arrivals.
    """
    known = _known(min(gap, _LARGEST_GAP), steps, probability, release, cap)
    return known.at(rates)


class _Known:
    """Moments of one walk at all rates that were asked for.

    Noise levels near each other share most of them; what is lost is the same for all.
    """

    def __init__(self, found: Callable[[Array], Moments]) -> None:
        self._found, self._logs = found, dict[float, float]()
        self._lost = self._older = 0.0

    def at(self, rates: tuple[float, ...]) -> Moments:
        if new := sorted(set(rates) - set(self._logs)):
            found = self._found(np.array(new, dtype=np.float64))
            self._logs |= zip(new, found.logs.tolist(), strict=True)
            self._lost, self._older = max(self._lost, found.lost), max(self._older, found.older)
        return Moments(np.array([self._logs[rate] for rate in rates]), self._lost, self._older)


@lru_cache(maxsize=32)
def _known(gap: float, steps: int, probability: float, release: float, cap: float) -> _Known:
    return _Known(partial(_moments, gap, steps, probability, release, cap))


def _moments(
    gap: float, steps: int, probability: float, release: float, cap: float, rates: Array
) -> Moments:
    steered = steered_moments(log_of(gap), steps, probability, release, rates, cap)
    if not (gap * steps < _LITTLE and steps < MOST_STEPS):
        return steered
    faces = face_moments(steps, probability, release, rates)
    logs = np.minimum(steered.logs, faces.logs)
    return Moments(logs, steered.lost + faces.lost, steered.older)
