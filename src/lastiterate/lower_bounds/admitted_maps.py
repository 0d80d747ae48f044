r"""Which gradient steps on the line a run's description admits.

All examples share a loss; the one in question has another gradient, by the sensitivity L, in the
other world.  Where gradients are bounded (by a clip or a Lipschitz constant, or since an example
may be left out) that one's loss is linear, and only the others of its batch, (b - 1)/b of the
step, may be curved, as far as their gradients allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.loss import gradient_reach, local_curvatures
from lastiterate.run.training_run import Ball, TrainingRun


@dataclass(frozen=True)
class Admitted:
    """The maps and shifts that a run's description admits; arrays have an entry for each step.

    `gentlest` and `steepest` are the least and largest slope of a step without the example, and
    `plain` is the slope by the regulariser alone.  `share` is the part of a batch that keeps its
    curvature when the example joins.  `bound` is the largest gradient norm, and `drift` the largest
    gradient that all other examples may share.  `has_instances` says whether any instance exists;
    the example's loss is linear where gradients are bounded.
    """

    step_sizes: Array
    noise_stds: Array
    shifts: Array
    gentlest: Array
    steepest: Array
    plain: Array
    share: float
    bound: float
    drift: float
    may_be_left_out: bool
    domain: tuple[float, float] | None
    sensitivity: float
    has_instances: bool

    @property
    def is_free(self) -> bool:
        """Whether nothing bounds the iterates' way or the gradients, so that slopes may drift."""
        return self.domain is None and math.isinf(self.bound)

    @property
    def has_one_curvature(self) -> bool:
        """Whether all losses are equally curved, and everywhere."""
        return np.array_equal(self.gentlest, self.steepest)

    def moves_alone(self) -> tuple[float, float]:
        """How the example moves a step in each world, in shifts; the others are all alike."""
        if self.drift > 0.0 or self.may_be_left_out or math.isinf(self.bound):
            return 0.0, 1.0
        return -self.bound / self.sensitivity, 1.0 - self.bound / self.sensitivity

    def own_move(self, k: int, push: float) -> float:
        """How far the example, in the first world, moves step k beyond the others of its batch.

        The others are pushed by `push`; in the second world it moves by the shift more.
        """
        if math.isinf(self.bound):
            return 0.0
        most = self.bound * float(self.shifts[k]) / self.sensitivity
        like_others = push * (1.0 - self.share)
        if self.may_be_left_out:
            return -like_others
        return min(max(like_others, -most), most - float(self.shifts[k])) - like_others


def seen_together(run: TrainingRun) -> int:
    """How many of a person's examples a batch that has one may have, in every step that does.

    All of them in a fixed order, if a batch has room.  Where chance decides one is enough to be
    a valid instance.
    """
    if run.batches.resampling is not Resampling.NEVER:
        return 1
    return min(run.examples_per_person, run.batches.batch_size)


def with_those_seen_together(run: TrainingRun) -> TrainingRun:
    """The run with no more examples a person than a batch can have of them."""
    return run.replace(examples_per_person=seen_together(run))


def admitted(run: TrainingRun) -> Admitted:
    """The steps that obey the description, or as many of them as are known."""
    if not run.has_plain_steps:
        raise InvalidParameter(
            "run", run, must_be="one of plain steps whose last iterate is published"
        )
    etas = np.broadcast_to(np.asarray(run.step_size, dtype=float), (run.steps,))
    together = seen_together(run)
    size, penalty = run.batches.batch_size, run.loss.regulariser
    limit = gradient_reach(run)
    bounded = math.isfinite(limit)
    span = local_curvatures(run)
    linear = span is not None and span[0] <= penalty
    sized = run.batches.exact_size  # how curved a batch of unknown size is, is unknown too
    low, high = span if span is not None and sized else (penalty, penalty)
    half = run.domain.diameter / 2.0 if isinstance(run.domain, Ball) else math.inf
    return Admitted(
        step_sizes=etas,
        noise_stds=etas * np.asarray(run.noise_std, dtype=float),
        shifts=etas * (together * run.sensitivity) / size,
        gentlest=1.0 - etas * high,
        steepest=1.0 - etas * low,
        plain=1.0 - etas * penalty,
        share=(size - together) / size if bounded else 1.0,
        bound=limit,
        drift=limit if sized else 0.0,
        may_be_left_out=run.adjacency == "zero-out",
        domain=None if math.isinf(half) else (-half, half),
        sensitivity=run.sensitivity,
        has_instances=linear if bounded or not sized else span is not None,
    )
