"""The exponential moments of what random participations cost: the least that is known."""

import math
from functools import lru_cache

import numpy as np

from lastiterate._numerics.geometric import log_of
from lastiterate.engine.energy.face_moments import MOST_STEPS, face_moments
from lastiterate.engine.energy.steered import Moments, steered_moments

_LARGEST_GAP = 0.9  # more contraction is not used
_LITTLE = 0.5  # memories, up to which it may be better to ignore that anything is forgotten


@lru_cache(maxsize=32)
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
    every = np.array(rates, dtype=np.float64)
    gap = min(gap, _LARGEST_GAP)
    steered = steered_moments(log_of(gap), steps, probability, release, every, cap)
    if not (gap * steps < _LITTLE and steps < MOST_STEPS):
        return steered
    faces = face_moments(steps, probability, release, every)
    logs = np.minimum(steered.logs, faces.logs)
    return Moments(logs, steered.lost + faces.lost, steered.older)
