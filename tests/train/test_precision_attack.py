"""Mironov's attack on floating-point noise (2012): it breaks raw floats, not what is published.

Two data sets: rows of 0, and the same with one row of equal entries.  Where c + noise comes out
smaller than c in floats, its last bits are 0; where c is 0 they are not.
"""

import math

import numpy as np

import lastiterate as li
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic

WIDTH, EXAMPLES, STEP, NOISE = 20_000, 64, 8.0, 0.5
MOVED = STEP * 0.25 / EXAMPLES / math.sqrt(WIDTH)  # of each coordinate, by the one row


def worlds():
    for row in (np.zeros(WIDTH), np.full(WIDTH, 1 / math.sqrt(WIDTH))):
        rows = np.zeros((EXAMPLES, WIDTH))
        rows[0] = row
        yield bounded(rows, np.ones(EXAMPLES, dtype=int), bound=1.0, intercept=0.0)


def score(x):
    """The share of small coordinates that have the zeros which cancellation leaves."""
    x = x.ravel()
    near = x[(np.abs(x) < MOVED / 2) & (x != 0.0)]
    wanted = np.frexp(MOVED)[1] - np.frexp(near)[1] - 1
    near, wanted = near[wanted > 0], wanted[wanted > 0]
    bits = np.abs(near).view(np.int64) & ((1 << 52) - 1)
    zeros = np.where(bits == 0, 52, np.frexp((bits & -bits).astype(float))[1] - 1)
    return float((zeros >= wanted).mean()) if near.size else 0.5


def raw(world, seed):
    """The iterate that plain float64 arithmetic leaves."""
    rng = np.random.default_rng(seed)
    return world * MOVED + STEP * NOISE / EXAMPLES * rng.normal(size=WIDTH)


def scores(publish):
    return np.array([[score(publish(world, 2 * k + world)) for world in (0, 1)] for k in range(12)])


def test_raw_floats_are_told_apart_with_certainty():
    found = scores(raw)
    assert found[:, 1].min() > 0.99
    assert found[:, 0].max() < 0.9


def test_what_is_published_is_not():
    data = list(worlds())
    loss = Logistic().loss(radius=1.0, l2=0.0)
    run = li.TrainingRun(
        loss=loss,
        sensitivity=Logistic().sensitivity(radius=1.0, adjacency="replace"),
        batches=li.FullBatch(EXAMPLES),
        steps=1,
        step_size=STEP,
        noise_std=NOISE / EXAMPLES,
    )

    def published(world, seed):
        return noisy_descent(run, Logistic(), data[world], Randomness(SeededBits(seed)))

    found = scores(published)
    # On the grid, small numbers end in zeros in both worlds: no threshold tells them apart.
    best = max(abs((found[:, 1] >= t).mean() - (found[:, 0] >= t).mean()) for t in np.unique(found))
    assert best <= 0.5  # of twelve pairs; raw floats give 1
