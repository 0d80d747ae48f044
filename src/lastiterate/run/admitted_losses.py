"""Which curvatures the losses that a run's description admits may have."""

import numpy as np

from lastiterate.run.training_run import TrainingRun

Span = tuple[float, float]


def local_curvatures(run: TrainingRun) -> Span | None:
    """The least and largest curvature, penalty included, that losses may have somewhere.

    None if no loss obeys the description everywhere.  Of an unknown smoothness as much is taken
    as a step makes use of; a Hoelder gradient of an order below 1 is curved on short ways only, so
    that its losses are taken for linear.
    """
    loss, longest = run.loss, float(np.max(run.step_size))
    low = max(loss.strong_convexity - loss.regulariser, 0.0)
    if loss.holder is not None and loss.holder[1] < 1.0:
        high = 0.0
    else:
        known = [] if loss.smoothness is None else [loss.smoothness - loss.regulariser]
        known += [] if loss.holder is None else [loss.holder[0]]
        high = min(known, default=max(low, 1.0 / longest))
    if not loss.convex:
        low = -high
    return (low + loss.regulariser, high + loss.regulariser) if low <= high else None


def quadratic_curvatures(run: TrainingRun) -> Span | None:
    """The least and largest curvature of quadratic losses that obey the description, or None.

    But for the penalty a loss must be linear where its gradient is bounded, or where the example
    may be left out altogether.
    """
    span, penalty = local_curvatures(run), run.loss.regulariser
    if span is None or not has_bounded_gradients(run):
        return span
    return (penalty, penalty) if span[0] <= penalty <= span[1] else None


def has_bounded_gradients(run: TrainingRun) -> bool:
    """Whether no example's gradient, penalty excluded, may be arbitrarily large.

    Where an example may be left out, the sensitivity bounds its gradient.
    """
    return run.gradient_bound is not None or run.adjacency == "zero-out"
