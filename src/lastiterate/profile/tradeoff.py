"""Error rates that a delta curve allows."""

import numpy as np

from lastiterate._numerics.arrays import Array


def least_misses(
    fpr: float | Array, epsilons: Array, deltas: Array, *, off: float | Array = 0.0
) -> Array:
    """The least false-negative rates that (epsilon, delta)-DP, each by itself, leaves possible.

    1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr), whichever is more; negative where
    nothing is said.  `off` is what the numerators may be off by.
    """
    kept, growth = 1.0 - deltas, np.exp(epsilons)
    with np.errstate(over="ignore"):
        steep = kept - growth * fpr - off
    return np.asarray(np.maximum(steep, (kept - fpr - off) / growth))
