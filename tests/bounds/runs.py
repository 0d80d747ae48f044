"""Runs that several tests of bounds describe."""

import lastiterate as li


def described(batches, steps, *, smoothness=None, **changes):
    """A run whose step size, noise and sensitivity are 1 where nothing else is said."""
    usual = {"step_size": 1.0, "noise_std": 1.0, "sensitivity": 1.0}
    if "loss" not in changes:
        changes["loss"] = li.Loss(smoothness=1.0 if smoothness is None else smoothness)
    return li.TrainingRun(batches=batches, steps=steps, **(usual | changes))


def dp_sgd(batches, steps=None, *, epochs=1, noise=1.0, loss=None, **changes):
    """A run in the words of DP-SGD libraries: gradients of norm 1, and steps of 0.1."""
    usual = {"clip_norm": 1.0, "step_size": 0.1, "adjacency": "zero-out"}
    return li.TrainingRun.from_dp_sgd(
        batches=batches, noise_multiplier=noise, loss=loss or li.Loss(convex=False),
        steps=epochs * batches.batches_per_epoch if steps is None else steps, **(usual | changes),
    )  # fmt: skip


def short_run(rule=li.Cyclic, adjacency="zero-out", *, batches=None, steps=2_910, **changes):
    """DP-SGD with a penalty and steps below 1/smoothness; changes of these, or of the loss."""
    told = {"noise": 1.0, "step_size": 0.5}
    told = {name: changes.pop(name, value) for name, value in told.items()}
    known = {"smoothness": 0.26, "regulariser": 0.01, "lipschitz": 1.0, "outputs": 1} | changes
    batches = batches or rule(50_000, 512)
    return dp_sgd(batches, steps, loss=li.Loss(**known), adjacency=adjacency, **told)
