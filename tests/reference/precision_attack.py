"""An attack on noise that floats add to floats (Mironov 2012; Haney and others 2022).

Where a step c and noise cancel, so that their sum is much smaller than c, the sum is a multiple of
the last bit of c and ends in zeros.  Noise alone does not.
"""

import math

import numpy as np


def trailing_zeros(values):
    """How many bits at the end of each fraction are zero."""
    whole, width = {8: (np.int64, 52), 4: (np.int32, 23)}[values.itemsize]
    bits = np.abs(values).view(whole).astype(np.int64) & ((1 << width) - 1)
    return np.where(bits == 0, width, np.frexp((bits & -bits).astype(float))[1] - 1)


def hits(values, step):
    """How many values below the step have the zeros of a cancellation, and how many there are."""
    values = values[(np.abs(values) < step / 2) & (values != 0.0)]
    forced = math.frexp(step)[1] - np.frexp(values)[1] - 1
    values, forced = values[forced > 0], forced[forced > 0]
    return int((trailing_zeros(values) >= forced).sum()), values.size


def recognised(release, step, runs):
    """True and false positives of an attacker who wants every such value to have the zeros."""
    counts = np.array([[hits(release(world), step) for world in (0, 1)] for _ in range(runs)])
    all_zeros = counts[..., 0] == counts[..., 1]
    return all_zeros[:, 1].mean(), all_zeros[:, 0].mean()


def difference(release, step, runs):
    """How far apart the shares of such values are in both worlds, in standard errors."""
    counts = [np.sum([hits(release(w), step) for _ in range(runs)], axis=0) for w in (0, 1)]
    (found, of), (others, of_others) = counts
    share = (found + others) / (of + of_others)
    error = math.sqrt(max(share * (1.0 - share), 1e-12) * (1.0 / of + 1.0 / of_others))
    return (others / of_others - found / of) / error
