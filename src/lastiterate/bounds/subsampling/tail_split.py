r"""The choice of the last steps of a sampled run to amplify, and of their share of the noise.

Any choice is valid (`amplified_tail`); this one is made by rough moments.  At order a, and with
:math:`s = a(a-1)/2`, the logarithm of the moment of earlier participations is about

.. math:: s\,r^2 W^2/V + \sum_j p\,(e^{s r^2 c^{2j}/S_j} - 1) ,

where W is their discounted mean, V the variance of all noise and :math:`S_j` that of the ages up to
j; and each of the last steps has a moment of :math:`1 + p(e^{\rho Z - \rho^2/2} - 1)`.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from lastiterate._numerics.powers import (
    log_of,
    sum_of_inverse_powers,
    sum_of_powers,
    sums_of_powers,
)
from lastiterate._numerics.rounding import Array

USUAL_DELTA = 1e-6  # at which splits are compared
_LEAST_RATIO = 1e-6
_STEPS = (
    *(1, 2, 5, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920),
    *(2560, 3840, 5120),
)
_SHARES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.93)
_ORDERS = 1.0 + np.geomspace(0.2, 2000.0, 60)
_NORMAL_GRID = np.linspace(-8.0, 40.0, 400)
_AGES = 60  # groups of ages
_MEMORIES = 30.0  # older participations are neglected
_LARGEST_EXPONENT = 500.0
_TAIL_WEIGHT = 2.0  # by trial: moments underrate rare losses and overrate early ones
_LEAST_GAIN = 0.99  # a split must gain a per cent, which composition costs


@dataclass(frozen=True)
class TailSplit:
    """The last `steps` are amplified, with a `share` of the variance of their noise."""

    steps: int
    share: float

    def release_in_steps(self, gap: float) -> float:
        """The rest of the last steps' noise as release noise, in units of a step's noise."""
        return (1.0 - self.share) * sum_of_inverse_powers(2.0 * limited_log(gap), self.steps)


NO_TAIL = TailSplit(0, 1.0)


def best_split(
    gap: float, steps: int, probability: float, ratio: float, release_noise: float
) -> TailSplit:
    """The best split by rough moments; nearby noise levels share one.

    `ratio` is the per-step sensitivity over the noise of a step, and `release_noise` is in units of
    the latter.
    """
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return NO_TAIL
    rounded = math.exp(round(math.log(ratio) / 0.1) * 0.1)
    own = float(f"{release_noise**2:.1e}")
    return _best(gap, steps, probability, rounded, own)


@lru_cache(maxsize=256)
def _best(gap: float, steps: int, probability: float, ratio: float, own: float) -> TailSplit:
    def epsilon(split: TailSplit) -> float:
        released = split.release_in_steps(gap) + own
        early = _early_log_moments(gap, steps - split.steps, probability, ratio, released)
        late = (
            _TAIL_WEIGHT
            * split.steps
            * _step_log_moments(probability, ratio / math.sqrt(split.share))
        )
        return float(np.min((early + late - math.log(USUAL_DELTA)) / (_ORDERS - 1.0)))

    splits = [TailSplit(length, share) for length, share in product(_STEPS, _SHARES)]
    epsilons = {split: epsilon(split) for split in splits if split.steps < steps}
    epsilons[NO_TAIL] = _LEAST_GAIN * epsilon(NO_TAIL)
    return min(epsilons, key=epsilons.__getitem__)


def _early_log_moments(
    gap: float, steps: int, probability: float, ratio: float, released: float
) -> Array:
    """The logarithms of the moments of participations before the tail, for each order."""
    log_c = limited_log(gap)
    span = min(float(steps), _MEMORIES / -log_c) if log_c < 0.0 else float(steps)
    edges = np.unique(np.rint(np.append(0.0, np.geomspace(1.0, max(span, 1.0), _AGES))))
    ages, lengths = edges[:-1], np.diff(edges)
    since = sums_of_powers(2.0 * log_c, ages + 1.0) + released
    mean = probability * sum_of_powers(log_c, steps)
    whole = mean * mean / (sum_of_powers(2.0 * log_c, steps) + released)
    scale = 0.5 * _ORDERS * (_ORDERS - 1.0) * ratio * ratio
    exponents = scale[:, None] * (np.exp(2.0 * log_c * ages) / since)
    single = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ lengths
    return np.asarray(scale * whole + probability * single)


@lru_cache(maxsize=64)
def _step_log_moments(probability: float, ratio: float) -> Array:
    """The logarithms of the moments of one amplified step, for each order."""
    exponents = np.minimum(ratio * _NORMAL_GRID - 0.5 * ratio * ratio, _LARGEST_EXPONENT)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, and adds nothing
        logs = np.log1p(probability * np.expm1(exponents))
    terms = _ORDERS[:, None] * logs - 0.5 * np.square(_NORMAL_GRID)
    top = terms.max(axis=1)
    sums = np.exp(terms - top[:, None]).sum(axis=1) * (_NORMAL_GRID[1] - _NORMAL_GRID[0])
    return np.asarray(np.maximum(top + np.log(sums) - 0.5 * math.log(2.0 * math.pi), 0.0))


def limited_log(gap: float) -> float:
    """log c, for c of at least a tenth; a larger c only lowers the noise for shifts."""
    return log_of(min(gap, 0.9))
