"""Composition: every batch rule charged at its worst."""

import math

import numpy as np
import pytest

import lastiterate as li


def composed(batches, steps, noise_std=1.0):
    run = li.TrainingRun(
        loss=li.Loss(convex=False),
        sensitivity=3.0,
        batches=batches,
        steps=steps,
        step_size=0.1,
        noise_std=noise_std,
    )
    return li.account(run, bounds="composition").gdp()


@pytest.mark.parametrize(
    "batches, participations",
    [
        (li.FullBatch(60), 25),
        (li.Cyclic(60, 10), 5),
        (li.ShuffledOnce(65, 10), 5),
        (li.ShuffledEachEpoch(60, 10), 5),
        (li.SampledWithoutReplacement(60, 10), 25),
        (li.PoissonSampled(60, 10, 20), 25),
        (li.FixedOrder(60, 10, [1, 2, 3]), 3),
        (li.FixedOrder(60, 10, []), 0),
    ],
)
def test_counts_the_most_participations(batches, participations):
    mu = 3.0 / batches.batch_size * math.sqrt(participations)
    assert composed(batches, 25) == pytest.approx(mu, rel=1e-13)
    assert composed(batches, 25, [1.0] * 25) == pytest.approx(mu, rel=1e-13)


@pytest.mark.parametrize(
    "batches, worst",
    [
        (li.FullBatch(6), range(25)),
        (li.SampledWithoutReplacement(6, 1), range(25)),
        (li.Cyclic(6, 1), [0, 6, 12, 18, 24]),
        (li.ShuffledEachEpoch(6, 1), [0, 6, 12, 18, 24]),
        (li.FixedOrder(6, 1, [2, 9]), [1, 8]),
    ],
)
def test_a_schedule_is_charged_where_it_is_quietest(batches, worst):
    noise = np.linspace(1.0, 2.0, 25)
    mu = 3.0 / batches.batch_size * math.sqrt(sum(1 / noise[k] ** 2 for k in worst))
    assert composed(batches, 25, noise) == pytest.approx(mu, rel=1e-13)


@pytest.mark.parametrize("scale", [1e-250, 1e250])
def test_extreme_noise(scale):
    mu = composed(li.FullBatch(6), 4, [scale] * 4)
    assert mu == pytest.approx(0.5 * 2 / scale, rel=1e-12)
