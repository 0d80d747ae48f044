"""The numbers of one step of an Opacus optimizer, read from it just before the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping

from lastiterate import _check
from lastiterate._numerics.rounding import ulps_of
from lastiterate.errors import RefusedTraining

_GHOST = DPOptimizerFastGradientClipping
_PRECISE = (torch.float32, torch.float64)
SMALLER_LAST_BATCH = (
    "the last batch of a pass is smaller than the others, since batch_size does not divide the "
    "number of examples: use drop_last=True"
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
    """Settings of one step; the sum of clipped gradients and noise is divided by `divisor`."""

    step_size: float
    weight_decay: float
    noise_multiplier: float
    clip: float
    divisor: float


def is_ghost(optimizer: Any) -> bool:
    """Whether the optimizer uses ghost clipping, which holds no gradients of single examples."""
    return type(optimizer) is _GHOST


def read_step(optimizer: Any) -> OptimizerStep:
    """The settings of the next step; raises `RefusedTraining` if its sensitivity is unknown."""
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
    group = optimizer.param_groups[0]
    mean = optimizer.loss_reduction == "mean"
    divisor = optimizer.expected_batch_size if mean else 1.0
    return OptimizerStep(
        step_size=float(group["lr"]),
        weight_decay=float(group.get("weight_decay", 0.0)),
        noise_multiplier=_check.number("noise_multiplier", optimizer.noise_multiplier, above=0.0),
        clip=_check.number("max_grad_norm", optimizer.max_grad_norm, above=0.0),
        divisor=_check.number("expected_batch_size", divisor, above=0.0),
    )


def step_deviations(optimizer: Any, *, even: bool) -> Iterator[str]:
    """Reasons why the step is not a plain gradient step on a batch of known size."""
    yield from optimizer_deviations(optimizer.original_optimizer)
    if not even:
        yield SMALLER_LAST_BATCH
    if any(one.dtype not in _PRECISE for one in optimizer.params):
        yield "parameters have less precision than float32"


def optimizer_deviations(original: Any) -> Iterator[str]:
    """Reasons why the optimizer that Opacus wraps does not make plain gradient steps."""
    if type(original) is not torch.optim.SGD:
        yield f"the optimizer is {type(original).__name__}, not torch.optim.SGD"
        return
    first = original.param_groups[0]
    for group in original.param_groups:
        for name in ("momentum", "dampening", "nesterov", "maximize"):
            if group[name]:
                yield f"the optimizer has {name}={group[name]}"
        for name in ("lr", "weight_decay"):
            if float(group[name]) != float(first[name]):
                yield f"groups of parameters differ in {name}"
    if not float(first["lr"]) > 0.0:
        yield f"a step size is {float(first['lr'])!r}"
    if original._optimizer_step_pre_hooks or original._optimizer_step_post_hooks:
        yield "hooks of the optimizer may change gradients or parameters"


class ExpectedParameters:
    """The parameters that the next step should begin with, if nothing but steps changes them."""

    def __init__(self, expected: list[torch.Tensor] | None = None) -> None:
        self.expected = expected

    def changed_since(self, optimizer: Any) -> bool:
        """Whether something other than the last step changed the parameters."""
        if self.expected is None:
            return False
        found = [one.detach() for one in optimizer.params]
        if [one.shape for one in found] != [one.shape for one in self.expected]:
            return True
        return not all(map(_is_close, found, self.expected))

    def after(self, optimizer: Any, step: OptimizerStep) -> None:
        """Set the expected values to those after the next step."""
        self.expected = [
            one.detach() - step.step_size * (one.grad + step.weight_decay * one.detach())
            for one in optimizer.params
        ]


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree up to the rounding of one step."""
    expected = expected.to(found.device)
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    kind = "float32" if found.dtype == torch.float32 else "float64"
    rounding = ulps_of(kind, 64.0) * max(scale, 1.0)
    return bool(torch.allclose(found, expected, rtol=rounding, atol=rounding))
