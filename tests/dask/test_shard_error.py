"""Sums over shards, in 60 digits again: no error is larger than what is charged for a step."""

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest

import lastiterate as li
from lastiterate.train.arithmetic import problem_of, step_errors
from lastiterate.train.centring import Centre
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import counted_batches
from lastiterate.train.objectives import Logistic

from ..reference import exact_step
from ..train.problems import run_of
from ..train.test_step_error import exact_rows, hostile
from .problems import on_cluster

EXAMPLES, WIDTH = 40, 5
CHUNKS = (1, 7, 12, 1, 19)
CENTRE = Centre(np.array([0.3, -0.2, 0.5, 0.1, 0.0]), 0.2)
ETA = 0.5


def worst(shards, data, rule, scale):
    """The largest error of a step without grid over its charge, at random parameters."""
    objective = Logistic()
    run = run_of(data, rule, objective=objective, steps=3, step_size=ETA, noise_std=1.0)
    rng, found = np.random.default_rng(0), []
    rows = [row for batch in counted_batches(data, slice(None)) for row in exact_rows(batch)]
    order = rule.arrangement(Randomness(SeededBits(4)))
    order = np.arange(EXAMPLES) if order is None else order
    loss = {"name": "Logistic", "clip": objective.clip}
    chosen = rule.selections(Randomness(SeededBits(0)))
    gradients = shards.batches(rule, objective, Randomness(SeededBits(4)))
    for _, gradient, part in zip(range(3), gradients, chosen, strict=False):
        here = scale * rng.normal(size=(1, WIDTH + 1))
        own = order[part]
        start = [[mp.mpf(float(x)) for x in here[0]]]
        ideal = exact_step.step(
            start, [rows[k] for k in own], data.targets[own].tolist(), loss=loss,
            intercept=data.intercept, offset=np.zeros(1), size=rule.batch_size, l2=0.0, eta=ETA,
            diameter=None, guesses=[None] * own.size,
        )  # fmt: skip
        total = gradient(here)[0]
        step = mp.mpf(ETA) / rule.batch_size
        end = [[x - step * mp.mpf(float(g)) for x, g in zip(start[0], total, strict=True)]]
        reach = math.nextafter(float(np.linalg.norm(here)), math.inf)
        charged = step_errors(
            run, problem_of(objective, shards), np.array([ETA]), np.zeros(1), reach
        )
        found.append(float(exact_step.distance(end, ideal) / mp.mpf(float(charged[0]))))
    return max(found)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("centre", [None, CENTRE])
@pytest.mark.parametrize("held", [True, False])
def test_no_error_is_above_its_charge(client, held, centre, dtype):
    """Chunks of one row, rows of all sizes, held by workers or read again in every step."""
    rows = hostile(dtype, seed=1, count=EXAMPLES, width=WIDTH)
    targets = np.random.default_rng(2).integers(2, size=EXAMPLES)
    data = bounded(rows, targets, bound=1.5, intercept=0.25)
    around = data if centre is None else data.around(centre)
    rules = [li.FullBatch(EXAMPLES), li.Cyclic(EXAMPLES, 20)]
    rules += [li.ShuffledOnce(EXAMPLES, 20)] if held else []
    for rule, scale in product(rules, (3.0, 1e-3)):
        shards = on_cluster(client, data, chunks=CHUNKS, held=held)
        shards = shards if centre is None else shards.around(centre)
        assert worst(shards, around, rule, scale) <= 1.0


def test_the_oracle_sees_sums_of_float32(client):
    rows = hostile(np.float64, seed=1, count=EXAMPLES, width=WIDTH)
    data = bounded(rows, np.arange(EXAMPLES) % 2, bound=1.5, intercept=0.25)
    shards = on_cluster(client, data, chunks=CHUNKS)
    usual = shards.actors.ask

    def short(method, questions):
        answers = usual(method, questions)
        kept = method != "gradient"
        return answers if kept else [np.float32(one).astype(np.float64) for one in answers]

    shards.actors.ask = short
    assert worst(shards, data, li.FullBatch(EXAMPLES), 3.0) > 100.0
