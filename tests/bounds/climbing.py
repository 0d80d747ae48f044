"""Searches for instances on the line that leak more than is certified."""

from copy import copy
from dataclasses import replace

import numpy as np


class ShortSteps:
    """Steps that keep between `least` and `contraction`, and what examples add, at most 1.

    A subclass says in `deltas` what the instance leaks, at every epsilon.
    """

    low, share_of_factors = -1.0, 0.5

    def __init__(self, rng, steps, least, contraction):
        self.least, self.contraction = least, contraction
        kind = rng.integers(4)
        at = rng.random(steps) if kind == 0 else rng.random(steps) < [0.5, 1.0, 0.0][kind - 1]
        self.factors = contraction - (contraction - least) * at

    def changed(self, rng):
        """A neighbouring instance."""
        other = copy(self)
        other.factors, other.added = self.factors.copy(), self.added.copy()
        size = 10.0 ** rng.uniform(-2, 0) * rng.standard_normal()
        if rng.random() < self.share_of_factors:
            step = rng.integers(self.factors.size)
            moved = self.factors[step] + size * (self.contraction - self.least)
            other.factors[step] = np.clip(moved, self.least, self.contraction)
        else:
            where = tuple(rng.integers(self.added.shape))
            other.added[where] = np.clip(self.added[where] + 2.0 * size, self.low, 1.0)
        return other


def climbed(rng, instances, certified, climbs):
    """The largest exact delta over the certified one, by climbing from the worst instance."""

    def share(instance):
        exact = instance.deltas()
        return float(np.max(np.where(exact > 1e-9, exact / certified, 0.0)))

    best = max(instances, key=share)
    worst = share(best)
    for _ in range(climbs):
        other = best.changed(rng)
        if (found := share(other)) > worst:
            best, worst = other, found
    return worst


def worst_share(count, seed, drawn, bound, climbs=4):
    """The worst of random descriptions, and for how many earlier noise was of use.

    `drawn` makes (run, short steps, how to make an instance) of chance.  `bound` is asked again
    for steps that keep no noise, with the same choices.
    """
    rng, worst, gained = np.random.default_rng(seed), 0.0, 0
    for _ in range(count):
        run, short_steps, instance = drawn(rng)
        state = rng.bit_generator.state
        certified = bound(rng, run, short_steps)
        rng.bit_generator.state = state
        later = bound(rng, run, replace(short_steps, curvature=1.0))
        gained += bool(np.any(certified < 0.98 * later))
        worst = max(worst, climbed(rng, [instance(rng) for _ in range(3)], certified, climbs))
    return worst, gained
