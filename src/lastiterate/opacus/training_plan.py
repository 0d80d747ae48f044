"""The record of a training by Opacus that is planned, for `make_private_with_epsilon`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lastiterate import _check
from lastiterate.opacus.optimizer_step import (
    SMALLER_LAST_BATCH,
    OptimizerStep,
    group_settings,
    optimizer_deviations,
)
from lastiterate.opacus.training_record import TrainingRecord
from lastiterate.opacus.watched_loader import SHUFFLED, Batches, read_batches


@dataclass(frozen=True)
class TrainingPlan:
    """The optimizer, clip and loader that `make_private_with_epsilon` will be given.

    The certificate is about the training as it took place.  If that differs from the plan, only
    the target epsilon is missed.

    Parameters
    ----------
    optimizer : torch.optim.SGD, optional
        The optimizer, as it is given to Opacus.
    max_grad_norm : float, optional
        The clip.
    data_loader : DataLoader, optional
        The loader, as it is given to Opacus.
    poisson_sampling : bool
        Whether Opacus replaces its batches by Poisson batches.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> rows = torch.utils.data.TensorDataset(torch.zeros(8, 3), torch.zeros(8).long())
    >>> TrainingPlan(
    ...     optimizer=torch.optim.SGD(layer.parameters(), lr=0.1),
    ...     max_grad_norm=2.0,
    ...     data_loader=torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True),
    ... ).poisson_sampling
    True
    """

    optimizer: Any = None
    max_grad_norm: float | None = None
    data_loader: Any = None
    poisson_sampling: bool = True


def planned_record(plan: TrainingPlan, history: list[tuple[float, float, int]]) -> TrainingRecord:
    """The record of these steps by the plan; composition if the plan is incomplete."""
    reasons = []
    settings: dict[str, Any] = {"step_size": 1.0, "weight_decay": 0.0}
    if plan.optimizer is None or plan.max_grad_norm is None or plan.data_loader is None:
        reasons.append("the plan has no optimizer, max_grad_norm or data_loader")
    else:
        reasons += optimizer_deviations(plan.optimizer)
        settings = group_settings(plan.optimizer)
    clip = 1.0 if plan.max_grad_norm is None else plan.max_grad_norm
    clip = _check.number("max_grad_norm", clip, above=0.0)
    batches = _planned_batches(plan, history[0][1])
    divisor = max(int(batches.examples * (1 / batches.per_pass)), 1)  # as Opacus computes it
    steps = [
        OptimizerStep(
            noise_multiplier=_check.number("noise_multiplier", noise, above=0.0),
            clip=clip,
            divisor=divisor,
            **settings,
        )
        for noise, _, times in history
        for _ in range(times)
    ]
    steps[1:] = [replace(step, empty_buffer=False) for step in steps[1:]]
    passes = [1 + k // batches.per_pass for k in range(len(steps))]
    if not batches.even:
        reasons.append(SMALLER_LAST_BATCH)
    return TrainingRecord(steps, passes, batches, True, reasons)


def _planned_batches(plan: TrainingPlan, rate: float) -> Batches:
    if plan.data_loader is None:
        each = max(1, round(1.0 / rate))
        if plan.poisson_sampling:
            return Batches.poisson(each, rate, each)
        return Batches(SHUFFLED, each, each, 1)
    read = read_batches(plan.data_loader)
    if not plan.poisson_sampling:
        return read
    return Batches.poisson(read.examples, 1 / read.per_pass, read.per_pass)
