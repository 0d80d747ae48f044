"""Runs on the line whose others are curved on a stretch, density by density on grids.

x' = x - (lam x + (sum of the batch's gradients)/b) + N(0, 1).  The others' gradient is curved on a
stretch and constant beyond it; that of the example in question is constant.
"""

from itertools import pairwise

import numpy as np
from scipy.special import ndtr


def others_gradient(x, *, middle, curvature, half, level):
    """`level` in the middle, and at most `half` from it."""
    return level + np.clip(curvature * (x - middle), -half, half)


def _moved(points, to, grid):
    """From each point (a row) to each cell around the grid's, the ends holding the rest."""
    edges = np.concatenate([[-np.inf], (grid[1:] + grid[:-1]) / 2, [np.inf]])
    return np.diff(ndtr(edges[None, :] - to[:, None]), axis=1)


def last_law(*, size, lam, own, gradient, chance, sizes, grids):
    """Of the last iterate, as cells of the last grid; the first grid is the start alone.

    Every step sees the example with this chance.  `sizes` maps how many others a batch has to
    how likely that is; None if every batch has exactly `size` examples.
    """
    law = np.ones(1)
    for points, grid in pairwise(grids):
        slope, total = gradient(points), 0.0
        for seen, likely in ((0, 1.0 - chance), (1, chance)):
            for others, share in ({size - seen: 1.0} if sizes is None else sizes).items():
                to = points - lam * points - (others * slope + seen * own) / size
                total = total + likely * share * (law @ _moved(points, to, grid))
        law = total
    return law


def hockey_stick(ours, theirs, epsilon):
    return float(np.maximum(ours - np.exp(epsilon) * theirs, 0.0).sum())


def both_ways(ours, theirs, epsilon):
    return max(hockey_stick(ours, theirs, epsilon), hockey_stick(theirs, ours, epsilon))
