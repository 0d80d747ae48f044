"""Shuffled runs on the line, every order of every epoch written out.

The step k maps x to f_k x + (1/b) sum of what the examples of the batch add in that step + N(0, 1),
so that the last iterate is a mixture, over the orders, of Gaussians of one variance.
"""

from functools import cache
from itertools import permutations, product

import numpy as np
from scipy.special import ndtr


@cache
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


def hockey_sticks(ours, theirs, spread, epsilons, weights=None):
    """For each epsilon sup P(A) - e^epsilon Q(A), P and Q being mixtures of Gaussians with these
    means, either way round: the larger.

    A is made of cells of a fine grid: from below, and close.
    """
    low = min(ours.min(), theirs.min()) - 9 * spread
    high = max(ours.max(), theirs.max()) + 9 * spread
    grid = np.linspace(low, high, 4001)
    weights = np.full(ours.size, 1.0 / ours.size) if weights is None else weights

    def masses(means):
        means, which = np.unique(np.round(means, 12), return_inverse=True)
        below = ndtr((grid[:, None] - means) / spread) @ np.bincount(which.ravel(), weights)
        return np.diff(below)

    one, other = masses(ours), masses(theirs)
    return [max(_gain(one, other, epsilon), _gain(other, one, epsilon)) for epsilon in epsilons]


def _gain(one, other, epsilon):
    return float(np.maximum(one - np.exp(epsilon) * other, 0.0).sum())
