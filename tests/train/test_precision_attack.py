"""The zeros that cancellation leaves tell float releases apart, and not what is published.

One full-batch step, certified at epsilon 1.  In one data set all rows are zeros, in the other the
first has equal entries, so that its gradient moves every parameter by the same step.
"""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic
from tests.reference.precision_attack import difference, recognised

WIDTH, EXAMPLES, SIZE, RUNS = 50_000, 2, 8.0, 20
LOSS = Logistic()
STEP = SIZE * LOSS.residual_bound / EXAMPLES / math.sqrt(WIDTH)


@pytest.fixture(scope="module")
def run():
    uncalibrated = li.TrainingRun(
        loss=LOSS.loss(radius=1.0, l2=0.0),
        sensitivity=LOSS.sensitivity(radius=1.0, adjacency="replace"),
        batches=li.FullBatch(EXAMPLES),
        steps=1,
        step_size=SIZE,
        noise_std=1.0,
    )
    return li.calibrate(uncalibrated, epsilon=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def noise_std(run):
    return SIZE * run.noise_std


@pytest.fixture(scope="module")
def published(run):
    """What the trainer publishes, for either data set."""
    worlds, bits = [], SeededBits(0)
    for entry in (0.0, 1.0 / math.sqrt(WIDTH)):
        rows = np.zeros((EXAMPLES, WIDTH))
        rows[0] = entry
        worlds.append(bounded(rows, np.ones(EXAMPLES, np.intp), bound=1.0, intercept=0.0))
    return lambda world: noisy_descent(run, LOSS, worlds[world], Randomness(bits)).ravel()


@pytest.fixture
def in_floats(noise_std):
    """Float noise, rounded to a type, added to a float step of that type."""
    rng = np.random.default_rng(0)

    def release_in(dtype):
        def release(world):
            noise = (noise_std * rng.standard_normal(WIDTH)).astype(dtype)
            return dtype(world * STEP) + noise

        return release

    return release_in


def test_little_may_be_told_apart(run):
    report = li.account(run)
    assert 0.99 < report.epsilon(1e-5) <= 1.0
    assert report.advantage() < 0.108


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_floats_are_told_apart_with_certainty(in_floats, dtype):
    true, false = recognised(in_floats(dtype), STEP, RUNS)
    assert true == 1.0
    assert false <= 0.1
    assert difference(in_floats(dtype), STEP, RUNS) > 10.0


def test_what_is_published_is_not(published):
    true, false = recognised(published, STEP, RUNS)
    assert abs(true - false) <= 0.1
    assert abs(difference(published, STEP, 2 * RUNS)) < 5.0


def test_the_attacked_step_is_taken(published, noise_std):
    """It shows in the mean, as it may; else the attacker would look in the wrong place."""
    means = [np.mean([published(world).mean() for _ in range(RUNS)]) for world in (0, 1)]
    error = noise_std / math.sqrt(RUNS * WIDTH)
    assert abs(means[0]) < 5.0 * error
    assert abs(means[1] - STEP) < 5.0 * error


def test_whoever_knows_the_grid_sees_all_its_bits_alike(published, noise_std):
    unit = noise_std * 2.0**-40
    for world in (0, 1):
        whole = np.rint(published(world) / unit).astype(np.int64)
        for bit in range(8):
            ones = int((whole >> bit & 1).sum())
            assert abs(ones - WIDTH / 2) < 5.0 * math.sqrt(WIDTH) / 2
