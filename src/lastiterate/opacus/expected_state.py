"""Whether anything but recorded steps changed the parameters, or the momentum buffer."""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from opacus.optimizers import DPOptimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lastiterate._numerics.rounding import ulps_of
from lastiterate.errors import RefusedTraining
from lastiterate.opacus.optimizer_step import OptimizerStep, momentum_buffers
from lastiterate.torch.layers import write_count

Tensors = list[torch.Tensor]
_COMPARED = 65_536  # numbers of a parameter that are compared, at least


class SavedTensor(NamedTuple):
    """A tensor as it was: by its place and the writes that torch counts, and by its content."""

    where: tuple[int, int]
    kind: torch.dtype
    content: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> SavedTensor:
        # Of a large one some numbers, evenly: who writes to it hardly leaves out just these.
        flat = tensor.detach().reshape(-1)
        content = digest_of([flat[:: max(1, len(flat) // _COMPARED)]])
        return cls((tensor.data_ptr(), write_count(tensor)), tensor.dtype, content)

    def is_that_of(self, tensor: torch.Tensor, *, thorough: bool) -> bool:
        """Whether it has not changed; what was cast to another type cannot be compared."""
        if tensor.dtype != self.kind:
            return True
        if not thorough and (tensor.data_ptr(), write_count(tensor)) == self.where:
            return True
        return SavedTensor.of(tensor).content == self.content


class OtherSteps:
    """Refuses trainings in which anything but private steps used an optimizer of torch.

    torch calls a hook before every step of any of its optimizers.  One step of the optimizer that
    Opacus wraps follows each private step; any other step on parameters of `model` is another one,
    unless it is a private step of another training.
    """

    def __init__(self, optimizer: Any, model: Any = None) -> None:
        self.optimizer = optimizer
        # All that is published: also what the private optimizer does not change.
        model = getattr(model, "_module", model)
        self._published = [] if model is None else [weakref.ref(one) for one in model.parameters()]
        self._found: str | None = None
        self._bare = False  # whether what was found had no noise that an accountant saw
        self.trained_elsewhere: dict[int, SavedTensor] = {}  # by other private optimizers, by id
        self._elsewhere = False  # whether another private optimizer is making a step
        self._begun = False
        self._noised = False  # the next step of the wrapped optimizer has its noise
        _watch_all_optimizers()
        _WATCHES.add(self)

    def begin_step(self) -> None:
        """Note that noise was added for a step, and refuse it if others were made since the last.

        Steps before the first one made the start, of which the user states that it is public.
        """
        if self._begun and self._found is not None:
            raise _other_step(self._found, "between two private steps")
        self._found, self._bare, self._begun, self._noised = None, False, True, True
        _NOISED.add(self.optimizer.original_optimizer)

    def refuse_bare_steps(self) -> None:
        """Refuse if a step without noise was made after the last private one."""
        if self._begun and self._bare and self._found is not None:
            raise _other_step(self._found, "after the last private step")

    def refuse_unseen_steps(self) -> None:
        """Refuse if the wrapped optimizer made steps, and none of them was a private one."""
        if not self._begun and self._found == _WRAPPED:
            raise RefusedTraining(
                "Opacus' optimizer made steps that the accountant did not see: attach_step_hook "
                "replaces its hook, and steps of original_optimizer have no noise",
                instead="leave the hook that make_private attached, or let yours call it",
            )

    def saw(self, stepping: Any, *, private: bool) -> None:
        """Note the step of an optimizer; `private` if another private optimizer makes it."""
        self._elsewhere = private and stepping is not self.optimizer.original_optimizer
        wrapped = stepping is self.optimizer.original_optimizer
        if wrapped and self._noised:
            self._noised = False
        elif wrapped and not private:
            self._found, self._bare = _WRAPPED, True
        elif not self._bare:
            own = {id(one) for one in self.optimizer.params}
            if not private:
                own |= {id(one) for ref in self._published if (one := ref()) is not None}
            if any(id(one) in own for group in stepping.param_groups for one in group["params"]):
                self._found = f"another optimizer ({type(stepping).__name__})"
                self._bare = not private

    def saw_end(self, stepping: Any) -> None:
        """Note what the step of another private optimizer made of its parameters."""
        if self._elsewhere:
            for group in stepping.param_groups:
                self.trained_elsewhere |= {id(one): SavedTensor.of(one) for one in group["params"]}
        self._elsewhere = False


_WATCHES: weakref.WeakSet[OtherSteps] = weakref.WeakSet()
_NOISED: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers whose next step is private
_WRAPPED = "the optimizer that Opacus wraps (original_optimizer)"


@cache
def _watch_all_optimizers() -> None:
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _before_step(stepping: Any, *_: Any) -> None:
    noised, owner = stepping in _NOISED, _stepping_now(stepping)
    _NOISED.discard(stepping)
    for watch in list(_WATCHES):
        others = owner is not None and owner is not watch.optimizer and _adds_noise(owner)
        watch.saw(stepping, private=noised or others)


def _after_step(stepping: Any, *_: Any) -> None:
    for watch in list(_WATCHES):
        watch.saw_end(stepping)


def _adds_noise(optimizer: DPOptimizer) -> bool:
    """Whether it does, and an accountant is told of each of its steps."""
    return optimizer.noise_multiplier > 0.0 and optimizer.step_hook is not None


def _stepping_now(wrapped: Any) -> Any:
    """The optimizer of Opacus that makes this step of the one that it wraps; None if none does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        own = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if isinstance(own, DPOptimizer) and own.original_optimizer is wrapped:
            return own
        frame = frame.f_back
    return None


def _other_step(what: str, when: str) -> RefusedTraining:
    return RefusedTraining(
        f"{what} changed parameters of the model {when}, and its gradients need not have noise",
        instead="let nothing but the step of Opacus' optimizer change them, and ask for epsilon "
        "before the model is trained further, on public rows",
    )


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

    @staticmethod
    def digest(optimizer: Any) -> str:
        """A digest of the parameters as they are, for states of trainings that are not foreseen."""
        return digest_of(optimizer.params)

    def deviations(self, optimizer: Any, *, first_step: bool) -> Iterator[str]:
        """Reasons why the state before a step is not the one that the last step left.

        Raises `RefusedTraining` if parameters are others: what changed them may have used the data.
        """
        found = [one.detach() for one in optimizer.params]
        if self.parameters is not None and not _are_close(found, self.parameters):
            raise changed_parameters()
        buffers = [one for one in momentum_buffers(optimizer) if one is not None]
        if not buffers:
            return  # an emptied buffer is recorded with the step
        if first_step:
            yield "the momentum buffer was not empty before the first step"
        elif self.parameters is not None and not _are_close(buffers, self.buffers or []):
            yield "the momentum buffer was changed between steps, by something else"


def digest_of(tensors: Tensors) -> str:
    """A digest of types, shapes and values."""
    found = hashlib.sha256()
    for one in tensors:
        found.update(f"{one.dtype} {tuple(one.shape)}".encode())
        flat = one.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def changed_parameters() -> RefusedTraining:
    """The refusal of a step that begins with other parameters than the last one left."""
    return RefusedTraining(
        "parameters were changed between steps by something else, which may have used the data "
        "without noise",
        instead="let only the optimizer change them (and load the model and the optimizer when "
        "training goes on from a checkpoint), or describe the run to li.account",
    )


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
