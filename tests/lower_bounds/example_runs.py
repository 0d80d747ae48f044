"""Runs that several tests of lower bounds begin with."""

import lastiterate as li


def square(batches=None, **changes):
    settings = {
        "loss": li.Loss(smoothness=2.0, strong_convexity=0.5), "sensitivity": 1.0,
        "batches": batches or li.FullBatch(4), "steps": 12, "step_size": 0.3, "noise_std": 0.5,
    }  # fmt: skip
    return li.TrainingRun(**{**settings, **changes})


def dp_sgd(batches, **changes):
    settings = {
        "steps": 6, "clip_norm": 1.0, "noise_multiplier": 1.0, "step_size": 0.05,
        "loss": li.Loss(smoothness=0.25, lipschitz=1.0), "adjacency": "replace",
    }  # fmt: skip
    return li.TrainingRun.from_dp_sgd(batches=batches, **{**settings, **changes})


def penalised(batches, *, z, penalty, steps, step_size, adjacency="zero-out", **changes):
    """A clipped logistic regression with an l2 penalty."""
    loss = li.Loss(smoothness=0.25 + penalty, regulariser=penalty, lipschitz=1.0)
    return dp_sgd(
        batches, loss=loss, noise_multiplier=z, steps=steps, step_size=step_size,
        adjacency=adjacency, **changes,
    )  # fmt: skip
