"""Small problems that several tests train on."""

from dataclasses import fields
from itertools import product

import numpy as np
from sklearn.base import MetaEstimatorMixin, RegressorMixin

import lastiterate as li
from lastiterate import linear_model
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.train.centring import centre_of_sum, sum_in_units
from lastiterate.train.data import bounded
from lastiterate.train.objectives import Logistic

EXPORTED = [getattr(linear_model, name) for name in linear_model.__all__]
# What is made of another estimator, or of a schema, has its own tests.
ESTIMATORS = [
    each
    for each in EXPORTED
    if hasattr(each, "fit")
    and not issubclass(each, (MetaEstimatorMixin, linear_model.PrivateSchema))
]
MODELS = [each for each in ESTIMATORS if issubclass(each, PrivateLinearModel)]
REGRESSORS = [each for each in MODELS if issubclass(each, RegressorMixin)]
ROWS = np.random.default_rng(0).normal(size=(600, 4))
SIDES = ROWS[:, 0] + ROWS[:, 1] > 0


def made(model, **settings):
    """The estimator, with a range of targets if it needs one."""
    if model in REGRESSORS:
        settings = {"target_bound": 1.0} | settings
    return model(**settings)


RULES = {
    "full": li.FullBatch(103),
    "cyclic": li.Cyclic(103, 20),
    "once": li.ShuffledOnce(103, 20),
    "each": li.ShuffledEachEpoch(103, 20),
    "sampled": li.SampledWithoutReplacement(103, 20),
    "poisson": li.PoissonSampled(103, 20, 25),
    "bins": li.BallsAndBins(103, 20),
    "bins each": li.BallsAndBinsEachEpoch(103, 20),
    "balanced": li.BalancedSampled(103, 20, 3),
}

# What tests choose for a parameter of an objective, whichever has it.
PARAMETERS = {
    "clip": (0.05, 2**0.5 / 4, 0.8, 2.0),
    "classes": (2, 3, 10, 50),
    "kind": ("envelope", "margin"),
    "width": (1.0, 0.1),
}


def instances(kind):
    """An objective with every combination of these parameters that it takes."""
    names = [each.name for each in fields(kind) if each.name in PARAMETERS]
    found = {}
    for values in product(*(PARAMETERS[name] for name in names)):
        try:
            objective = kind(**dict(zip(names, values, strict=True)))
        except InvalidParameter:
            continue
        found[repr(objective)] = objective
    assert found, f"no parameters for {kind.__name__}"
    return list(found.values())


def targets_for(objective, count, rng):
    """Targets that it admits: any number if it takes halves, else whole ones."""
    if objective.admits(np.array([0.5])):
        drawn = rng.normal(size=count)
        return drawn if objective.admits(np.array([-0.5])) else np.abs(drawn)
    whole = [k for k in range(50) if objective.admits(np.array([k]))]
    return rng.choice(whole, size=count)


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


def published_centre(rows, release, source, *, bound):
    total = sum_in_units(rows, bound=bound)
    return centre_of_sum(total, release, source, examples=rows.shape[0], bound=bound)
