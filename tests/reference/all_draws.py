"""Runs on the line, every draw of every example's steps written out.

The step k maps x to f_k x + (1/b) sum of what the examples of the batch add + N(0, 1), where
f_k = 1 - penalty - curvature_k |batch|/b depends on how many are in it.  So the last iterate is a
mixture, over the draws, of Gaussians of several variances.
"""

from functools import cache
from itertools import combinations, product

import numpy as np
from scipy.special import ndtr

from tests.reference.all_orders import epochs_seen


@cache
def every_pick(examples, size, steps, each):
    """(members, probabilities): members[pick, step, example] says who is in which batch."""
    length = examples // size
    epochs = -(-steps // length)
    chances = dict.fromkeys(range(length), size / examples) | {-1: 1 - length * size / examples}
    likely = [place for place, chance in chances.items() if chance > 1e-12]
    one = np.array(list(product(likely, repeat=examples)))
    weights = np.prod(np.vectorize(chances.get)(one), axis=1)
    rows = one[:, None, :] == np.arange(length)[:, None]
    if not each:
        return np.concatenate([rows] * epochs, axis=1)[:, :steps], weights
    numbers = np.array(list(product(range(len(one)), repeat=epochs)))
    members = np.concatenate([rows[numbers[:, epoch]] for epoch in range(epochs)], axis=1)
    return members[:, :steps], np.prod(weights[numbers], axis=1)


@cache
def every_order(examples, size, steps, each):
    """The same for shuffled batches."""
    seen = epochs_seen(examples, size, steps, each)
    members = np.any(seen[..., None] == np.arange(examples), axis=2)
    return members, np.full(len(members), 1.0 / len(members))


@cache
def every_sample(examples, size, steps):
    """The same for batches of `size` that are drawn anew in every step."""
    rows = np.array([np.isin(range(examples), one) for one in combinations(range(examples), size)])
    members = rows[np.array(list(product(range(len(rows)), repeat=steps)))]
    return members, np.full(len(members), 1.0 / len(members))


@cache
def every_choice(examples, size, steps):
    """The same for Poisson batches: everyone takes part, or not, in every step."""
    members = np.array(list(product((False, True), repeat=steps * examples)))
    present, share = members.sum(axis=1), size / examples
    weights = share**present * (1 - share) ** (members.shape[1] - present)
    return members.reshape(-1, steps, examples), weights


@cache
def every_balance(examples, often, length, steps):
    """The same for batches in which everyone is in `often` of every `length` steps."""
    one = np.array([np.isin(range(length), at) for at in combinations(range(length), often)])
    drawn = np.array(list(product(range(len(one)), repeat=-(-steps // length))))
    rows = one[drawn].reshape(len(drawn), -1)[:, :steps]  # of one example
    members = rows[np.array(list(product(range(len(rows)), repeat=examples)))]
    return members.transpose(0, 2, 1), np.full(len(members), 1.0 / len(members))


def last_iterates(members, size, penalty, curvatures, added):
    """(means, standard deviations), for every draw; added[example, step]."""
    means, variances = np.zeros(len(members)), np.zeros(len(members))
    for step, curvature in enumerate(curvatures):
        there = members[:, step]
        factors = 1 - penalty - curvature * there.sum(axis=1) / size
        means = factors * means + there @ added[:, step] / size
        variances = factors**2 * variances + 1
    return means, np.sqrt(variances)


def hockey_sticks(ours, theirs, weights, epsilons):
    """For each epsilon sup P(A) - e^epsilon Q(A), either way round: the larger.

    A is made of cells of a fine grid: from below, and close.
    """
    low, high = (
        end([end(means + 9 * side * stds) for means, stds in (ours, theirs)])
        for end, side in ((np.min, -1), (np.max, 1))
    )
    grid = np.linspace(low, high, 1501)

    def masses(means, stds):
        kinds, which = np.unique(
            np.round(np.column_stack([means, stds]), 12), axis=0, return_inverse=True
        )
        below = ndtr((grid[:, None] - kinds[:, 0]) / kinds[:, 1])
        return np.diff(below @ np.bincount(which.ravel(), weights))

    one, other = masses(*ours), masses(*theirs)
    return [max(_gain(one, other, epsilon), _gain(other, one, epsilon)) for epsilon in epsilons]


def _gain(one, other, epsilon):
    return float(np.maximum(one - np.exp(epsilon) * other, 0.0).sum())
