"""Laws on the line of iterations that a machine computes: rounded maps, and the floor of noise.

M_k = F_k(M_{k-1}) + floor(Z_k), all whole numbers of a unit.  F_k is any map to whole numbers that
is no further than `error` from the exact one.  The law is that of whole numbers, so it is computed
by sums over all of them, and nothing is approximated but in the last digits.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

APART, TOGETHER, RANDOM, COIN = "apart", "together", "random", "coin"


@dataclass(frozen=True)
class RoundedStep:
    """One update: a map for each world, its noise, the unit's bits, errors, and their sign.

    `sign` is that of errors which move the second world away from the first.
    """

    maps: tuple
    noise_std: float
    bits: int
    error: float
    sign: float = 1.0

    @property
    def unit(self):
        return self.noise_std * 2.0**-self.bits


def floor_law(bits, cut):
    """The law of floor(2^bits N) given |N| < cut, from its least value on."""
    ends = np.arange(-round(cut * 2**bits), round(cut * 2**bits) + 1) / 2.0**bits
    below = np.where(ends[:-1] < 0, ndtr(ends[1:]) - ndtr(ends[:-1]), 0.0)
    # From the other side, so that small probabilities keep their digits.
    masses = np.where(ends[:-1] < 0, below, ndtr(-ends[:-1]) - ndtr(-ends[1:]))
    return round(ends[0] * 2**bits), masses / masses.sum()


def _images(step, points, world, signs):
    """Whole numbers that are as far as allowed from the exact images, on the side of the signs."""
    exact = np.asarray(step.maps[world](points), float)
    above = np.floor((exact + step.error) / step.unit)
    below = np.ceil((exact - step.error) / step.unit)
    whole = np.where(signs > 0, above, below)
    assert (np.abs(whole * step.unit - exact) <= step.error * (1 + 1e-9)).all()
    return whole.astype(np.int64)


def _signs(step, kind, world, count, rng):
    """A list of equally likely choices of the signs of errors."""
    if kind == COIN:
        return [np.ones(count), -np.ones(count)]
    if kind == RANDOM:
        return [rng.choice([-1.0, 1.0], count)]
    away = step.sign if world else -step.sign
    return [np.full(count, away if kind == APART else -away)]


def machine_law(steps, world, kind, cut, rng):
    """The least whole number of the last iterate, and the law from there on; it starts at 0."""
    first, law, unit = 0, np.ones(1), 0.0
    for step in steps:
        points = (first + np.arange(law.size)) * unit
        choices = _signs(step, kind, world, law.size, rng)
        images = [_images(step, points, world, signs) for signs in choices]
        low, high = min(i.min() for i in images), max(i.max() for i in images)
        moved = np.zeros(high - low + 1)
        for image in images:
            np.add.at(moved, image - low, law / len(images))
        least, noise = floor_law(step.bits, cut)
        first, law, unit = low + least, np.convolve(moved, noise), step.unit
    return first, law


def aligned(one, other):
    """Both laws from the same whole number on."""
    first = min(one[0], other[0])
    size = max(one[0] + one[1].size, other[0] + other[1].size) - first
    laws = np.zeros((2, size))
    for law, (start, masses) in zip(laws, (one, other), strict=True):
        law[start - first : start - first + masses.size] = masses
    return laws


def hockey_stick(laws, epsilon):
    """The larger direction."""
    p, q = laws
    tilt = np.exp(epsilon)
    return max(np.maximum(p - tilt * q, 0.0).sum(), np.maximum(q - tilt * p, 0.0).sum())
