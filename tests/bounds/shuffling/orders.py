"""Shuffled runs whose steps contract, and instances of them that leak much."""

import numpy as np

import lastiterate as li
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.bounds.runs import described
from tests.reference.all_orders import epochs_seen, hockey_sticks, means

RULES = [li.ShuffledOnce, li.ShuffledEachEpoch]
# Of the receiving and of the late run, as factors of the sensitivity.
FACTORS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]


def contracting(rule, shape, ratio, contraction, adjacency="replace"):
    examples, size, steps = shape
    loss = li.Loss(smoothness=1.0 + 1e-9, strong_convexity=1.0 - contraction)
    batches = rule(examples, size)
    return described(batches, steps, loss=loss, sensitivity=ratio * size, adjacency=adjacency)


def leaked(rule, shape, factors, added, other, epsilon):
    """If the first example adds `other` instead."""
    seen = epochs_seen(*shape, rule is li.ShuffledEachEpoch)
    ours, spread = means(seen, np.array(factors), np.array(added, dtype=float))
    theirs, _ = means(seen, np.array(factors), np.array([other, *added[1:]], dtype=float))
    return hockey_sticks(ours, theirs, spread, [epsilon])[0]


# Two batches of one; the other example marks the early position, and step two contracts: the
# example whose position is taken visits the receiving one, which must count.
VISIT = li.ShuffledEachEpoch, (2, 1, 2), [1.0, 0.283], [[0, 0], [1, 0]], [1, 1]
VISITED = contracting(li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.283)

NOTHING = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
MARKS = [1, -1, 1, -1, 1, -1]
# By climbing: each leaks more than would be certified if one participation counted too little.
FOUND = {
    "i against u counts twice": (
        li.ShuffledOnce, (2, 1, 2), 1.0, "zero-out", 3.5,
        [0.3, 0.0], [[1, 1], [1, -1]], NOTHING[:2],
    ),
    "in either order of the data sets": (
        li.ShuffledOnce, (4, 1, 4), 1.0, "zero-out", 3.5, [0.0, 0.0, 0.2, 0.0],
        [[-1, -1, 1, 1], [-1, 1, -1, -1], [-1, 1, -1, -1], [0.586, 1, -1, -1]], NOTHING[:4],
    ),
    "both positions in earlier epochs": (
        li.ShuffledOnce, (4, 2, 6), 0.5, "zero-out", 2.0, [-0.2, 0.2, 0.3, 0.3, 0.3, 0.3],
        [[1] * 6, MARKS, [-1, *MARKS[1:]], [-1, *MARKS[1:]]], NOTHING,
    ),
    "the latest receiving position": (
        li.ShuffledEachEpoch, (3, 1, 6), 2.0, "replace", 3.5, [0.3, *[-0.3] * 5],
        [[0, 2, 0, 2, 0, 2], [2, 2, 0, 0, 2, 2], [0.545, 1.922, 0, 0, 2, 2]],
        [2, 0, 2, 0, 2, 0],
    ),
}  # fmt: skip


def mu_of(participations, steps, contraction, reserved=0, share=0.0):
    """mu by optimal shifts of all steps, of (step, size), but for noise that is reserved."""
    sensitivity, noise = np.zeros(steps), np.ones(steps)
    for step, size in participations:
        sensitivity[step] += size
    noise[steps - reserved :] = np.sqrt(1.0 - share)
    return optimal_shifts(contraction=contraction, sensitivity=sensitivity, noise=noise).mu
