"""Energies of participations that are drawn at random."""

import numpy as np

from lastiterate.shifts.minorant import sparse_minorant


def simulated_energies(rng, steps, probability, contraction, count):
    unit = contraction ** np.arange(steps)[::-1]
    energies = np.zeros(count)
    for i in range(count):
        seen = np.flatnonzero(rng.random(steps) < probability)
        if seen.size:
            energies[i] = sparse_minorant(seen, unit[seen], unit**2).energy
    return energies
