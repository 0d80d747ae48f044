"""Formulas of newer papers, as printed, in their own symbols."""

import numpy as np
from scipy.stats import binom, norm


def iteration_rdp(alpha, t, *, n, L, sigma):
    """Feldman et al.: one pass over n examples, noise eta sigma, L-Lipschitz; the t-th of them.

    Equal shifts a = 2 eta L/(n + 1 - t) in each of the steps from t on: sum alpha a^2/(2 s^2), s
    the noise eta sigma of a step.
    """
    shifts = np.full(n + 1 - t, 2 * L / (n + 1 - t))
    return float(np.sum(alpha * shifts**2 / (2 * sigma**2)))


def linear_heuristic_delta(epsilon, *, T, q, sigma):
    """Steinke et al.: P = Binomial(T, q) + N(0, sigma^2 T) against Q = N(0, sigma^2 T)."""
    counts, spread = np.arange(T + 1), sigma * np.sqrt(T)
    chances = binom.pmf(counts, T, q)

    x = np.linspace(-10 * spread, T + 10 * spread, 40_001)
    p, r = chances @ norm.pdf(x, counts[:, None], spread), norm.pdf(x, 0.0, spread)
    gains = (np.maximum(a - np.exp(epsilon) * b, 0.0) for a, b in ((p, r), (r, p)))
    return max(float(np.trapezoid(gain, x)) for gain in gains)
