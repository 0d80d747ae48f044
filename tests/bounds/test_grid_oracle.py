"""No bound lies below the exact privacy of a one-dimensional instance it covers."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.profile import GaussianProfile
from tests.reference.grid import exact_pair
from tests.reference.instances import random_instance
from tests.slow import slow_if

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
RESOLUTION = 1e-9  # of the oracle's delta


def contracting_run(rng):
    """A run of up to 30 steps, in one dimension, projected or not."""
    steps = int(rng.integers(1, 31))
    batches = int(rng.integers(1, min(steps, 6) + 1))
    smoothness = 10 ** rng.uniform(-1, 1)
    step_size = rng.choice([rng.uniform(0.05, 2.0), 1.0, 1.9]) / smoothness
    arriving = 10 ** rng.uniform(-1, 0.3)  # in units of a step's noise
    ball = rng.random() < 0.5
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=smoothness,
            strong_convexity=smoothness * float(rng.choice([0.0, rng.random(), 0.02])),
        ),
        sensitivity=arriving / step_size,
        batches=li.Cyclic(batches, 1) if batches > 1 else li.FullBatch(1),
        steps=steps,
        step_size=step_size,
        noise_std=1.0 / step_size,
        release_noise_std=float(rng.choice([0.0, rng.uniform(0.2, 3.0)])),
        domain=li.Ball(10 ** rng.uniform(-0.5, 1.0)) if ball else li.Unbounded(),
    )


def instance_of(run, rng, slopes, kind=None):
    """Losses the run describes, for an example in the last batch, which is the most exposed."""
    period = run.batches.batches_per_epoch
    half = run.domain.diameter / 2 if isinstance(run.domain, li.Ball) else math.inf
    return random_instance(
        rng,
        steps=run.steps,
        slope_low=slopes[0],
        slope_high=slopes[1],
        sensitivity=run.step_size * run.sensitivity / run.batches.batch_size,
        participations=range(run.steps, 0, -period),
        noise_std=run.step_size * run.noise_std,
        domain=(-half, half) if half < math.inf else None,
        release_noise_std=run.release_noise_std,
        kind=kind,
    )


def worst_ratio(pair, mu):
    """The largest exact delta over the bound's; asserts that none exceeds it."""
    bound = GaussianProfile(mu)
    ratios = []
    for epsilon in EPSILONS:
        exact, certified = pair.delta(epsilon), bound.delta(epsilon)
        assert exact <= certified + RESOLUTION, (epsilon, exact, certified)
        ratios.append(exact / certified if certified > 1e-6 else 0.0)
    return max(ratios)


@pytest.mark.parametrize("seed", slow_if(bool, range(8)))
def test_contracting_runs(seed, record_property):
    """40 instances a seed: half of them projected, half with noise on release."""
    rng = np.random.default_rng(seed)
    ratios = []
    for _ in range(40):
        run = contracting_run(rng)
        loss = run.loss
        slopes = (1 - run.step_size * loss.smoothness, 1 - run.step_size * loss.strong_convexity)
        pair = exact_pair(instance_of(run, rng, slopes))
        ratios.append(worst_ratio(pair, li.account(run, bounds="fixed-order").gdp()))
    record_property("largest ratio exact/bound", max(ratios))
    assert max(ratios) > 0.95  # the oracle does reach the bound


@pytest.mark.parametrize("seed", slow_if(bool, range(2)))
def test_expanding_runs(seed):
    rng = np.random.default_rng(100 + seed)
    ratios = []
    for _ in range(15):
        run = contracting_run(rng)
        smoothness = rng.uniform(0.0, 0.3) / run.step_size
        run = run.replace(
            loss=li.Loss(smoothness=smoothness, convex=False), steps=min(run.steps, 12)
        )
        slopes = (1 - run.step_size * smoothness, 1 + run.step_size * smoothness)
        pair = exact_pair(instance_of(run, rng, slopes, kind="linear"))
        ratios.append(worst_ratio(pair, li.account(run, bounds="fixed-order/non-convex").gdp()))
    assert max(ratios) > 0.5
