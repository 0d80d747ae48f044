"""Shuffled runs on the line, every order of every epoch written out.

The step k maps x to f_k x + (1/b) sum of what the examples of the batch add in that step + N(0, 1),
so that the last iterate is a mixture, over the orders, of Gaussians of one variance.
"""

from itertools import permutations, product

import numpy as np
from scipy.special import ndtr


def epochs_seen(examples, size, steps, each):
    """(orders, steps, size): which examples each step sees, in every order alike probable."""
    length = examples // size
    epochs = -(-steps // length)
    one = np.array(list(permutations(range(examples))))[:, : length * size]
    one = one.reshape(-1, length, size)
    if not each:
        return np.concatenate([one] * epochs, axis=1)[:, :steps]
    # Which examples share a batch matters, not their order in it.
    one = np.unique(np.sort(one, axis=2), axis=0)
    every = [np.concatenate(orders, axis=0) for orders in product(one, repeat=epochs)]
    return np.array(every)[:, :steps]


def means(seen, factors, added):
    """Of the last iterate, for every order; added[example, step]."""
    steps = seen.shape[1]
    later = np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)
    gains = added[seen, np.arange(steps)[None, :, None]].mean(axis=2)
    return gains @ later, float(np.sqrt(np.sum(later**2)))


def hockey_stick(ours, theirs, spread, epsilon):
    """sup P(A) - e^epsilon Q(A) of two mixtures of Gaussians with these means: exact in cells
    between the sign changes of the difference of densities, found on a fine grid."""
    low = min(ours.min(), theirs.min()) - 9 * spread
    high = max(ours.max(), theirs.max()) + 9 * spread
    ours, mine = np.unique(np.round(ours, 12), return_counts=True)
    theirs, hers = np.unique(np.round(theirs, 12), return_counts=True)
    grid = np.linspace(low, high, 4001)

    def below(means, counts):
        return ndtr((grid[:, None] - means) / spread) @ (counts / counts.sum())

    # On every cell the set A has all or nothing: a lower bound, close on a fine grid.
    cells = np.diff(below(ours, mine)) - np.exp(epsilon) * np.diff(below(theirs, hers))
    return float(np.maximum(cells, 0.0).sum())
