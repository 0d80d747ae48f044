"""Every set of participations of a short run, and what the shift problem makes of it."""

from itertools import product

import numpy as np

from tests.reference.shifts import gdp_of_linear_shifts


def law_of_mu(*, steps, probability, contraction, diameter=np.inf):
    """(mus, probabilities) over all 2^steps sets of participations, by a general solver.

    Arrivals and noise are 1.
    """
    mus, chances = [], []
    for seen in product((0, 1), repeat=steps):
        mus.append(
            gdp_of_linear_shifts(
                contractions=np.full(steps, contraction),
                shifts=np.array(seen, dtype=float),
                noise_stds=np.ones(steps),
                diameter=diameter,
            )
        )
        chances.append(probability ** sum(seen) * (1 - probability) ** (steps - sum(seen)))
    return np.array(mus), np.array(chances)
