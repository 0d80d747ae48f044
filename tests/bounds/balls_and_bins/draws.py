"""Draws of balls and bins, written out, and the shuffled run that each of them is held to."""

from itertools import product

import numpy as np

import lastiterate as li

RULES = [li.BallsAndBins, li.BallsAndBinsEachEpoch]
SHUFFLED = {li.BallsAndBins: li.ShuffledOnce, li.BallsAndBinsEachEpoch: li.ShuffledEachEpoch}


def seen(rule, shape):
    """The steps that see the example (a row of 0 and 1), for all draws, equally likely."""
    batches, steps = shape
    epochs = -(-steps // batches)
    once = rule is li.BallsAndBins
    rows = []
    for draws in product(range(batches), repeat=1 if once else epochs):
        row = np.zeros(epochs * batches)
        row[np.arange(epochs) * batches + np.array(draws * epochs if once else draws)] = 1.0
        rows.append(row[:steps])
    return np.array(rows)
