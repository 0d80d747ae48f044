"""Errors of computed residuals are charged enough where steps follow without the example."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.shuffling.position_transport import LARGEST_NOISE_SHARE
from lastiterate.train.objectives import Softmax
from lastiterate.train.rounding_sensitivity import LEAST_REST, charged_sensitivity

from .problems import examples, run_of

DATA = examples()


class Sloppy(Softmax, abstract=True):
    """With an error that can be seen."""

    residual_error = 1e-10


def least_mu(run, extra, seen, *, error, window=0):
    """The engine's own answer where every step from the first participation on adds `error`.

    In the last `window` steps of the training only a share of the noise is left to pay with.
    """
    steps, own = run.steps, run.step_size * run.noise_std
    c = 1 - min(run.step_size * run.loss.strong_convexity, 1.0)
    arrival = np.zeros(steps)
    for step in seen:
        arrival[step] += run.step_size * run.sensitivity / run.batches.batch_size
    arrival[min(seen) :] += error
    noise = np.full(steps, own)
    noise[steps - window :] *= LEAST_REST**0.5
    released = run.release_noise_std
    return li.optimal_shifts(
        contraction=[*np.full(steps, c), 1.0, *np.full(extra, c), 1.0],
        sensitivity=[*arrival, 0.0, *np.full(extra, error), 0.0],
        noise=[*noise, released, *np.full(extra, own), released],
    ).mu


def plans(run, rng):
    """Participations of one example, of two exchanged, and of those without the last arrival."""
    length, steps = run.batches.batches_per_epoch, run.steps
    starts = range(0, steps, length)
    same = [rng.permutation(length)] * len(starts)
    each = [rng.permutation(length) for _ in starts]
    for orders in (same, each) if run.batches.resampling.name == "EACH_EPOCH" else (same,):
        one, two = (
            [s + int(o[k]) for s, o in zip(starts, orders, strict=True) if s + o[k] < steps]
            for k in (0, 1)
        )
        yield one, 0
        yield sorted(one + two), 0
        late, early = (one, two) if max(one) > max(two) else (two, one)
        yield sorted(early + late[:-1]), steps - max(late)


@pytest.mark.parametrize("extra", [1, 7, 30])
@pytest.mark.parametrize("release", [0.0, 0.05])
@pytest.mark.parametrize("rule", [li.ShuffledOnce(103, 20), li.ShuffledEachEpoch(103, 20)])
def test_covers_an_error_in_every_step_of_both(rule, release, extra):
    assert 1.0 - LARGEST_NOISE_SHARE >= LEAST_REST * (1 - 1e-9)
    rng = np.random.default_rng(extra)
    for l2, steps in ((0.0, 20), (0.05, 18)):
        objective = Sloppy(classes=3)
        run = run_of(
            DATA, rule, objective=objective, l2=l2, steps=steps, release_noise_std=release,
            adjacency="zero-out",
        )  # fmt: skip
        exact = objective.sensitivity(radius=DATA.radius, adjacency="zero-out")
        run = run.replace(sensitivity=exact)
        charged = charged_sensitivity(run, objective, radius=DATA.radius, extra_steps=extra)
        error = 2 * run.step_size * objective.residual_error * DATA.radius
        for seen, window in plans(run, rng):
            true = least_mu(run, extra, seen, error=error, window=window)
            more = run.replace(sensitivity=charged)
            stated = least_mu(more, extra, seen, error=0.0, window=window)
            assert least_mu(run, extra, seen, error=0.0, window=window) < true <= stated


def test_what_training_alone_is_charged_is_not_enough():
    objective = Sloppy(classes=3)
    run = run_of(
        DATA, li.ShuffledOnce(103, 20), objective=objective, steps=20, adjacency="zero-out"
    )
    exact = objective.sensitivity(radius=DATA.radius, adjacency="zero-out")
    alone = charged_sensitivity(run.replace(sensitivity=exact), objective, radius=DATA.radius)
    error = 2 * run.step_size * objective.residual_error * DATA.radius
    true = least_mu(run.replace(sensitivity=exact), 300, [4], error=error)
    assert true > least_mu(run.replace(sensitivity=alone), 300, [4], error=0.0)
