"""Every set of participations of a short run, and what the shift problem makes of it."""

from itertools import product

import numpy as np
from scipy.optimize import isotonic_regression

from tests.reference.shifts import gdp_of_linear_shifts


def participations(steps, probability):
    """(all 2^steps sets as rows of 0 and 1, their probabilities)."""
    sets = np.array(list(product((0, 1), repeat=steps)), dtype=float)
    counts = sets.sum(axis=1)
    return sets, probability**counts * (1 - probability) ** (steps - counts)


def law_of_mu(*, steps, probability, contraction=1.0, diameter=np.inf, worth=0.0):
    """(mus, probabilities) over all 2^steps sets of participations.

    Arrivals and noise are 1; the release is worth that many steps.  By scipy's isotonic
    regression, or with a diameter by a general solver.
    """
    sets, chances = participations(steps, probability)
    unit = contraction ** np.arange(steps - 1, -1, -1)
    masses, variances = np.append(unit, 0.0), np.append(unit**2, worth)
    if worth == 0.0:
        masses, variances = unit, unit**2
    mus = []
    for seen in sets:
        if np.isinf(diameter):
            arrived = np.append(seen, 0.0)[: masses.size] * masses
            slopes = isotonic_regression(arrived / variances, weights=variances).x
            mus.append(np.sqrt(slopes**2 @ variances))
        else:
            released = worth > 0.0
            mus.append(
                gdp_of_linear_shifts(
                    contractions=np.append(np.full(steps, contraction), [1.0] * released),
                    shifts=np.append(seen, [0.0] * released),
                    noise_stds=np.append(np.ones(steps), [np.sqrt(worth)] * released),
                    diameter=diameter,
                )
            )
    return np.array(mus), chances


def energy_of_ages(ages, *, contraction, worth):
    """The least energy for participations so many steps before the end, the oldest first."""
    steps = int(ages[0]) + 1 if len(ages) else 1
    unit = contraction ** np.arange(steps - 1, -1, -1)
    arrived, variances = np.zeros(steps + 1), np.append(unit**2, worth)
    arrived[steps - 1 - ages] = unit[steps - 1 - ages]
    slopes = isotonic_regression(arrived / variances, weights=variances).x
    return float(slopes**2 @ variances)
