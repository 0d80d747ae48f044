"""Checks of a run's claims about its losses: the only list, for trainers and verifiers.

A Lipschitz constant needs no entry: no run may state one below what its sensitivity implies.
"""

from collections.abc import Iterator

from lastiterate.errors import InvalidParameter
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.objective import Objective


def broken_promises(
    run: TrainingRun, objective: Objective, radius: float, *, slack: float = 0.0
) -> Iterator[InvalidParameter]:
    """Every claim of `run` that is not true of `objective` on rows of norm at most `radius`.

    Constants may fall short by a relative `slack`.
    """
    if not run.has_plain_steps:
        name = "momentum" if run.average is None else "average"
        must_be = "left out: the trainers take plain gradient steps and publish the last iterate"
        yield InvalidParameter(f"run.{name}", getattr(run, name), must_be=must_be)
    loss, l2 = run.loss, run.loss.regulariser
    needed = objective.loss(radius=radius, l2=l2).smoothness
    assert needed is not None
    if not (loss.smoothness or 0.0) >= needed * (1.0 - slack):
        must_be = f"at least {needed!r}, as in training"
        yield InvalidParameter("run.loss.smoothness", loss.smoothness, must_be=must_be)
    if not loss.convex:
        must_be = "True: the losses that are trained are convex"
        yield InvalidParameter("run.loss.convex", loss.convex, must_be=must_be)
    if loss.strong_convexity > l2:
        must_be = f"at most loss.regulariser = {l2!r}: only a penalty gives it"
        yield InvalidParameter("run.loss.strong_convexity", loss.strong_convexity, must_be=must_be)
    if loss.holder is not None:
        must_be = "None: no trainer of this library can guarantee Hoelder constants"
        yield InvalidParameter("run.loss.holder", loss.holder, must_be=must_be)
    if loss.outputs is not None and loss.outputs < objective.outputs:
        must_be = f"at least {objective.outputs}, the outputs of the model, or None"
        yield InvalidParameter("run.loss.outputs", loss.outputs, must_be=must_be)
    if run.clip_norm is not None:
        must_be = "None: these objectives clip without norm clipping"
        yield InvalidParameter("run.clip_norm", run.clip_norm, must_be=must_be)
    least = objective.sensitivity(radius=radius, adjacency=run.adjacency)
    if not run.sensitivity >= least * (1.0 - slack):
        must_be = f"at least {least!r}, as in training"
        yield InvalidParameter("run.sensitivity", run.sensitivity, must_be=must_be)
