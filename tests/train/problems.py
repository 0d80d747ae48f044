"""Small problems that several tests train on."""

import numpy as np

import lastiterate as li
from lastiterate.train.data import bounded
from lastiterate.train.objectives import Logistic

RULES = {
    "full": li.FullBatch(103),
    "cyclic": li.Cyclic(103, 20),
    "once": li.ShuffledOnce(103, 20),
    "each": li.ShuffledEachEpoch(103, 20),
    "sampled": li.SampledWithoutReplacement(103, 20),
    "poisson": li.PoissonSampled(103, 20, 25),
}


def examples(count=103, width=4, *, seed=0, intercept=0.5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, width)).astype(dtype)
    targets = (rows[:, 0] + 0.3 * rng.normal(size=count) > 0).astype(np.intp)
    return bounded(rows, targets, bound=1.0, intercept=intercept)


def run_of(data, batches, *, objective=None, l2=0.0, **changes):
    objective = Logistic() if objective is None else objective
    adjacency = changes.get("adjacency", "replace")
    loss = objective.loss(radius=data.radius, l2=l2)
    sensitivity = objective.sensitivity(radius=data.radius, adjacency=adjacency)
    settings = {
        "loss": loss,
        "sensitivity": sensitivity * (1 + 1e-6),
        "batches": batches,
        "steps": 17,
        "step_size": 1.0 / loss.smoothness,
        "noise_std": 0.1,
    }
    return li.TrainingRun(**(settings | changes))
