"""Whether anything but recorded steps changed the parameters, or the momentum buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from lastiterate._numerics.rounding import ulps_of
from lastiterate.opacus.optimizer_step import OptimizerStep, momentum_buffers

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class ExpectedState:
    """The parameters and buffers that the next step should begin with; None if not known."""

    parameters: Tensors | None = None
    buffers: Tensors | None = None

    @classmethod
    def after(cls, optimizer: Any, step: OptimizerStep) -> ExpectedState:
        """The state after the next step of `torch.optim.SGD`."""
        decays = {
            id(one): float(group.get("weight_decay", 0.0))
            for group in optimizer.param_groups
            for one in group["params"]
        }
        parameters, buffers = [], []
        for one, former in zip(optimizer.params, momentum_buffers(optimizer), strict=True):
            x = one.detach()
            moved = one.grad + decays[id(one)] * x
            if step.momentum:
                gradient = moved
                if former is not None:
                    moved = step.momentum * former + (1.0 - step.dampening) * gradient
                buffers.append(moved)
                moved = gradient + step.momentum * moved if step.nesterov else moved
            parameters.append(x - step.step_size * moved)
        return cls(parameters, buffers or None)

    def deviations(self, optimizer: Any, *, first_step: bool) -> Iterator[str]:
        """Reasons why the state before a step is not the one that the last step left."""
        found = [one.detach() for one in optimizer.params]
        if self.parameters is not None and not _are_close(found, self.parameters):
            yield "parameters were changed between steps, by something else"
        buffers = [one for one in momentum_buffers(optimizer) if one is not None]
        if not buffers:
            return  # an emptied buffer is recorded with the step
        if first_step:
            yield "the momentum buffer was not empty before the first step"
        elif self.parameters is not None and not _are_close(buffers, self.buffers or []):
            yield "the momentum buffer was changed between steps, by something else"


def _are_close(found: Tensors, expected: Tensors) -> bool:
    if [one.shape for one in found] != [one.shape for one in expected]:
        return False
    return all(map(_is_close, found, expected))


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree up to the rounding of one step."""
    expected = expected.to(found.device)
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    kind = "float32" if found.dtype == torch.float32 else "float64"
    rounding = ulps_of(kind, 64.0) * max(scale, 1.0)
    return bool(torch.allclose(found, expected, rtol=rounding, atol=rounding))
