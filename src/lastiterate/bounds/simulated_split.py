"""The same choice as in `split` by a rough simulation, for runs with few participations.

Their cost is not near any typical one, so that moments say little of it.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import scipy

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import sums_of_powers
from lastiterate._numerics.search import bracket
from lastiterate.bounds import quantities
from lastiterate.bounds.split import NO_TAIL, Split, log_cut, relative_release_noise
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.run.training_run import TrainingRun

_USUAL_DELTA = 1e-5
_DRAWS = 100
_MOST_ARRIVALS = 1_000
_LATE_DELTA = 1e-3  # late losses add to early ones: it is not their tail that matters most
_LEAST_RATIO = 1e-6
_TRIED = 4
_HOPELESS = 30.0  # an epsilon that does not repay the time
_STEPS = (1, 2, 5, 10, 20, 40, 80, 120, 160, 320, 640)
_SHARES = (0.5, 0.7, 0.8, 0.87, 0.93)


def simulated_split(run: TrainingRun) -> Split:
    """The best that a rough simulation finds; noise levels near each other share it.

    Early participations are averaged over, even where they stay hidden: that makes up for their
    law, which is rougher than the simulation's.
    """
    ratio = float(quantities.arrivals(run)[0]) / float(quantities.noises(run)[0])
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return NO_TAIL
    rounded = math.exp(round(math.log(ratio) / 0.1) * 0.1)
    own = float(f"{relative_release_noise(run) ** 2:.1e}")
    return _simulated(run.replace(noise_std=quantities.gradient_change(run) / rounded), own)


@lru_cache(maxsize=64)
def _simulated(run: TrainingRun, own: float) -> Split:
    probability, gap = run.batches.share, float(quantities.gaps(run)[0])
    ratio = quantities.ratio(run)
    ages = _ages(gap, run.steps, probability)

    def epsilon(split: Split, tail_square: float) -> float:
        released = split.release_in_steps(gap) + own
        kept = [age[age < run.steps - split.steps] for age in ages]
        energies = [rough_energy(age, gap, released) for age in kept]
        mus = np.sqrt(ratio * ratio * np.array(energies) + tail_square + 1e-12)
        return _rough_epsilon(mus)

    whole = epsilon(NO_TAIL, 0.0)
    if whole > _HOPELESS:
        return NO_TAIL
    rough = {}
    for split in (Split(steps, share) for steps, share in product(_STEPS, _SHARES)):
        if split.steps < run.steps and ratio * ratio / split.share <= 50.0:
            spread = probability * math.sqrt(split.steps * math.expm1(ratio * ratio / split.share))
            # Their tails are heavier than a Gaussian's of that spread.
            rough[split] = epsilon(split, (1.0 + ratio) * spread * spread)
    found = {NO_TAIL: 0.99 * whole}  # less does not repay what composing costs
    for split in sorted(rough, key=rough.__getitem__)[:_TRIED]:
        found[split] = epsilon(split, _square_of_tail(run, split))
    return min(found, key=found.__getitem__)


@lru_cache(maxsize=256)
def _square_of_tail(run: TrainingRun, split: Split) -> float:
    """The square of the mu of a Gaussian mechanism about as private as the last steps."""
    tail = split.tail(run)
    if tail is None:
        return math.inf
    epsilon = tail.epsilon(_LATE_DELTA)

    def below(mu: float) -> bool:
        return bool(gaussian_deltas(np.array([mu]), np.array([epsilon]))[0] < _LATE_DELTA)

    mu = bracket(below, 0.0, 100.0, apart=1e-10)[1]
    return mu * mu


def _ages(gap: float, steps: int, probability: float) -> list[Array]:
    """How long before the end an example took part, in some draws; only what may still matter."""
    rng = np.random.default_rng(0)
    span = int(min(steps, 10.0 / max(gap, 1e-12), _MOST_ARRIVALS / probability))
    counts = rng.binomial(span, probability, _DRAWS)
    return [np.unique(rng.integers(0, span, count))[::-1].astype(float) for count in counts]


def _rough_epsilon(mus: Array) -> float:
    """The epsilon of the average of Gaussian curves."""

    def above(epsilon: float) -> bool:
        return float(np.mean(gaussian_deltas(mus, np.full(mus.size, epsilon)))) > _USUAL_DELTA

    return bracket(above, 0.0, 700.0, apart=1e-9)[1]


def rough_energy(age: Array, gap: float, released: float) -> float:
    """What participations of these ages cost, with noise on release of so many steps."""
    if not age.size:
        return 0.0
    log_c = log_cut(gap)
    since = -np.diff(age, append=-1.0)  # steps from each participation up to the next
    spread = since if gap < 1e-12 else sums_of_powers(2 * log_c, since)
    between = np.exp(2 * log_c * (age - since + 1.0)) * spread
    between[-1] += released
    rates = scipy.optimize.isotonic_regression(np.exp(age * log_c) / between, weights=between).x
    return float(np.sum(between * np.square(rates)))
