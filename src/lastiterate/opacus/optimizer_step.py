"""The numbers of one step of an Opacus optimizer, read from it just before the step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, down
from lastiterate.errors import RefusedTraining

_GHOST = DPOptimizerFastGradientClipping
_PRECISE = (torch.float32, torch.float64)
SMALLER_LAST_BATCH = (
    "the last batch of a pass is smaller than the others, since batch_size does not divide the "
    "number of examples: use drop_last=True"
)
OTHER_CLIPS = (
    "the clip changed within a step, or ghost clipping has another one than the noise: step a "
    "clip scheduler once per logical batch, and with grad_sample_mode='hooks'"
)
_FLAT = "use clipping='flat' on one device"
_OTHER_CLASSES = {
    "DPPerLayerOptimizer": ("every layer is clipped by itself", _FLAT),
    "SimpleDistributedPerLayerOptimizer": ("every layer is clipped by itself", _FLAT),
    "AdaClipDPOptimizer": (
        "adaptive clipping learns the clip from the examples, and adds other noise than its "
        "noise_multiplier says",
        _FLAT,
    ),
    "DistributedDPOptimizer": ("training is distributed, where empty batches are dropped", _FLAT),
    "DistributedDPOptimizerFastGradientClipping": (
        "training is distributed, where empty batches are dropped",
        _FLAT,
    ),
}


@dataclass(frozen=True)
class OptimizerStep:
    """Settings of one step; the sum of clipped gradients and noise is divided by `divisor`.

    `weight_decay` is the least of all groups of parameters, `largest_decay` the largest one (None
    if all are equal).  A step with momentum stores its gradient as it is if the buffer is empty.
    """

    step_size: float
    weight_decay: float
    noise_multiplier: float
    clip: float
    divisor: float
    largest_decay: float | None = None
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    empty_buffer: bool = True


def is_ghost(optimizer: Any) -> bool:
    """Whether the optimizer uses ghost clipping, which holds no gradients of single examples."""
    return type(optimizer) is _GHOST


def read_step(optimizer: Any, clips: Iterable[Any] = ()) -> OptimizerStep:
    """The settings of the next step, whose physical batches were clipped by `clips`.

    Its clip is the largest of them, and its noise multiplier is in units of that.  Raises
    `RefusedTraining` if the sensitivity is unknown.
    """
    if type(optimizer) not in (DPOptimizer, _GHOST):
        name = type(optimizer).__name__
        why, instead = _OTHER_CLASSES.get(name, (f"{name} is not supported", _FLAT))
        raise RefusedTraining(why, instead=instead)
    if optimizer.accumulated_iterations != 1:
        raise RefusedTraining(
            f"gradients of {optimizer.accumulated_iterations} batches are accumulated, and an "
            "example may be in each of them",
            instead="use a larger batch_size, and BatchMemoryManager where memory does not suffice",
        )
    if hasattr(optimizer, "_adjusted_noise_multiplier"):
        why, instead = _OTHER_CLASSES["AdaClipDPOptimizer"]
        raise RefusedTraining(why, instead=instead)
    noise = _check.number("noise_multiplier", optimizer.noise_multiplier, above=0.0)
    clip = _check.number("max_grad_norm", optimizer.max_grad_norm, above=0.0)
    largest = max(clip, *(_check.number("max_grad_norm", one, above=0.0) for one in clips), 0.0)
    mean = optimizer.loss_reduction == "mean"
    divisor = optimizer.expected_batch_size if mean else 1.0
    return OptimizerStep(
        noise_multiplier=noise if largest == clip else down(noise * clip / largest, FEW_ROUNDINGS),
        clip=largest,
        divisor=_check.number("expected_batch_size", divisor, above=0.0),
        empty_buffer=all(one is None for one in momentum_buffers(optimizer)),
        **group_settings(optimizer),
    )


def group_settings(optimizer: Any) -> dict[str, Any]:
    """The settings of `OptimizerStep` that groups of parameters hold; torch ignores some of them.

    Groups that differ in more than their decay are refused by `optimizer_deviations`.
    """
    groups = optimizer.param_groups
    first = groups[0]
    decays = [float(group.get("weight_decay", 0.0)) for group in groups]
    momentum = float(first.get("momentum", 0.0))
    return {
        "step_size": float(first["lr"]),
        "weight_decay": min(decays),
        "largest_decay": max(decays) if max(decays) > min(decays) else None,
        "momentum": momentum,
        "dampening": float(first.get("dampening", 0.0)) if momentum else 0.0,
        "nesterov": bool(first.get("nesterov", False)) and momentum != 0.0,
    }


def refuse_label_weights(criterion: Any) -> None:
    """Refuse a mean over a batch that is divided by its label weights, and so depends on all rows.

    Ghost clipping has the criterion give the loss of each example instead.
    """
    weighted = isinstance(criterion, torch.nn.CrossEntropyLoss | torch.nn.NLLLoss)
    if weighted and criterion.weight is not None and criterion.reduction == "mean":
        raise RefusedTraining(
            f"{type(criterion).__name__}(weight=..) divides by the sum of the weights of a batch's "
            "labels, so one label changes the gradients of all examples",
            instead="leave out weight, or use a loss that multiplies the loss of each example by "
            "its weight and takes the plain mean",
        )


def momentum_buffers(optimizer: Any) -> list[torch.Tensor | None]:
    """The momentum buffer of each parameter; None where there is none yet."""
    return [optimizer.state.get(one, {}).get("momentum_buffer") for one in optimizer.params]


def step_deviations(optimizer: Any, *, even: bool) -> Iterator[str]:
    """Reasons why the step is not one of SGD on a batch of known size."""
    yield from optimizer_deviations(optimizer.original_optimizer)
    if not even:
        yield SMALLER_LAST_BATCH
    if any(one.dtype not in _PRECISE for one in optimizer.params):
        yield "parameters have less precision than float32"


def optimizer_deviations(original: Any) -> Iterator[str]:
    """Reasons why the optimizer that Opacus wraps does not make steps that a bound describes."""
    if type(original) is not torch.optim.SGD:
        yield f"the optimizer is {type(original).__name__}, not torch.optim.SGD"
        return
    first = original.param_groups[0]
    for group in original.param_groups:
        if group["maximize"]:
            yield "the optimizer has maximize=True"
        for name in ("lr", "momentum", "dampening", "nesterov"):
            # Then steps are no longer symmetric, and may expand distances on convex losses.
            if float(group[name]) != float(first[name]):
                yield f"groups of parameters differ in {name}"
        if not float(group["weight_decay"]) >= 0.0:
            yield f"a weight decay is {float(group['weight_decay'])!r}"
    if not float(first["lr"]) > 0.0:
        yield f"a step size is {float(first['lr'])!r}"
    if not 0.0 <= float(first["momentum"]) < 1.0:
        yield f"the optimizer has momentum={float(first['momentum'])!r}, which is not in [0, 1)"
    if float(first["momentum"]) and not 0.0 <= float(first["dampening"]) < 1.0:
        yield f"the optimizer has dampening={float(first['dampening'])!r}, which is not in [0, 1)"
    if original._optimizer_step_pre_hooks or original._optimizer_step_post_hooks:
        yield "hooks of the optimizer may change gradients or parameters"
