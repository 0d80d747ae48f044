r"""How many last steps of a sampled run to amplify, and with which share of their noise.

Any choice is a theorem (`amplified_tail`); this one is made by rough moments.  At order a, and with
:math:`s = a(a-1)/2`, the earlier participations are worth about

.. math:: s\,r^2 W^2/V + \sum_j p\,(e^{s r^2 c^{2j}/S_j} - 1) ,

W being what they bring on average, V all the noise and :math:`S_j` that since age j, and each of
the last steps a moment of :math:`1 + p(e^{\rho Z - \rho^2/2} - 1)`.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import (
    log_of,
    sum_of_inverse_powers,
    sum_of_powers,
    sums_of_powers,
)
from lastiterate.bounds import quantities
from lastiterate.bounds.composition.sampled_composition import composed_steps
from lastiterate.profile.pld import LossDistributionProfile
from lastiterate.run.training_run import TrainingRun

CELL = 2e-3
USUAL_DELTA = 1e-6
_LEAST_RATIO = 1e-6
_MOST_RELEASED = 1e6  # more noise on release, relative to a step's, is not used
_STEPS = (
    *(1, 2, 5, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920),
    *(2560, 3840, 5120),
)
_SHARES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.93)
_ORDERS = 1.0 + np.geomspace(0.2, 2000.0, 60)
_RESULTS = np.linspace(-8.0, 40.0, 400)
_AGES = 60
_LARGEST_EXPONENT = 500.0
_HEAVIER = 2.0  # by trial: moments say too little of rare losses, and too much of early ones


@dataclass(frozen=True)
class Split:
    """The last `steps` are amplified, with a `share` of the variance of their noise."""

    steps: int
    share: float

    def release_in_steps(self, gap: float) -> float:
        """The rest of the last steps' noise as release noise, in units of a step's noise."""
        return (1.0 - self.share) * sum_of_inverse_powers(2.0 * log_cut(gap), self.steps)

    def tail(self, run: TrainingRun) -> LossDistributionProfile | None:
        """The composition of the last steps, in cells of about half of the later size.

        None where their losses are too large for that.
        """
        typical = run.batches.share * quantities.ratio(run)
        cell = min(CELL / 2, typical / 5)
        return composed_steps(run, self.steps, share=self.share, least_cell=cell)


NO_TAIL = Split(0, 1.0)


def best_split(run: TrainingRun) -> Split:
    """The best by rough moments; noise levels near each other share a split."""
    ratio = float(quantities.sensitivities(run)[0]) / float(quantities.noises(run)[0])
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return NO_TAIL
    rounded = math.exp(round(math.log(ratio) / 0.1) * 0.1)
    gap = float(quantities.gaps(run)[0])
    own = float(f"{relative_release_noise(run) ** 2:.1e}")
    return _best(gap, run.steps, run.batches.share, rounded, own)


@lru_cache(maxsize=256)
def _best(gap: float, steps: int, probability: float, ratio: float, own: float) -> Split:
    def epsilon(split: Split) -> float:
        released = split.release_in_steps(gap) + own
        early = _early(gap, steps - split.steps, probability, ratio, released)
        late = _HEAVIER * split.steps * _late(probability, ratio / math.sqrt(split.share))
        return float(np.min((early + late - math.log(USUAL_DELTA)) / (_ORDERS - 1.0)))

    splits = [Split(length, share) for length, share in product(_STEPS, _SHARES)]
    found = {split: epsilon(split) for split in splits if split.steps < steps}
    found[NO_TAIL] = 0.99 * epsilon(NO_TAIL)  # less does not repay what composing costs
    return min(found, key=found.__getitem__)


def _early(gap: float, steps: int, probability: float, ratio: float, released: float) -> Array:
    log_c = log_cut(gap)
    span = min(float(steps), 30.0 / -log_c) if log_c < 0.0 else float(steps)
    edges = np.unique(np.rint(np.append(0.0, np.geomspace(1.0, max(span, 1.0), _AGES))))
    ages, lengths = edges[:-1], np.diff(edges)
    since = sums_of_powers(2.0 * log_c, ages + 1.0) + released
    brought = probability * sum_of_powers(log_c, steps)
    whole = brought * brought / (sum_of_powers(2.0 * log_c, steps) + released)
    scale = 0.5 * _ORDERS * (_ORDERS - 1.0) * ratio * ratio
    exponents = scale[:, None] * (np.exp(2.0 * log_c * ages) / since)
    single = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ lengths
    return np.asarray(scale * whole + probability * single)


@lru_cache(maxsize=64)
def _late(probability: float, ratio: float) -> Array:
    """The logarithm of one step's moment, for each order."""
    exponents = np.minimum(ratio * _RESULTS - 0.5 * ratio * ratio, _LARGEST_EXPONENT)
    logs = np.log1p(probability * np.expm1(exponents))
    terms = _ORDERS[:, None] * logs - 0.5 * np.square(_RESULTS)
    top = terms.max(axis=1)
    sums = np.exp(terms - top[:, None]).sum(axis=1) * (_RESULTS[1] - _RESULTS[0])
    return np.asarray(np.maximum(top + np.log(sums) - 0.5 * math.log(2.0 * math.pi), 0.0))


def relative_release_noise(run: TrainingRun) -> float:
    """The noise on release, as far as it is used, over that of a step."""
    noise = float(quantities.noises(run)[0])
    return min(run.release_noise_std / (quantities.unit(run) * noise), _MOST_RELEASED)


def log_cut(gap: float) -> float:
    """log c of a contraction cut at a tenth, which only lowers what the last steps can pay."""
    return log_of(min(gap, 0.9))
