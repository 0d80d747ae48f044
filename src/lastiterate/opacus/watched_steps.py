"""The steps of an Opacus optimizer as they are made: rows, clips, gradients, and what else changed.

`DPOptimizer` gets a `clip_and_accumulate` that inspects the gradients of examples before they are
clipped, once for each physical batch.  Ghost clipping never holds them.  There, a hook on the first
parameter counts backward passes, two for each batch, and reads the norms.

A logical batch of several physical ones is clipped part by part, and its noise is drawn at the end,
by the clip of that time; with ghost clipping the model has a clip of its own, which schedulers do
not change.  So the largest clip of a step is recorded.

The user states the loss and the bound on rows.  Gradients cannot prove these, only refute them; if
they do, only composition is claimed.

Opacus adds up the gradients of row i of all forward passes that one backward pass goes through, so
that the number of rows shows one of them alone.  So forward passes are counted too, by hooks on the
model: of all of it, and of layers that are called by themselves.  What checkpointing computes again
during the backward pass is counted apart.
"""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn

import torch
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._pytree import tree_leaves

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, down, ulps_of
from lastiterate.errors import RefusedTraining
from lastiterate.opacus.linear_loss import LinearLoss
from lastiterate.run.loss import Loss
from lastiterate.torch.layers import write_count

_TOLERANCE = 1e-3  # relative to what is stated; single precision needs a hundredth of that
_INPUTS = 256  # that are kept in mind before those that are gone are forgotten
_BACKWARD_PASSES = 2  # of a batch, with ghost clipping
_GHOST_BACKWARD = ("opacus.utils.fast_gradient_clipping_utils", "backward")
TOO_LONG = (
    "a gradient was longer than lipschitz={bound:.9g} before clipping, so rows are longer than "
    "stated or the loss is a different one (with weight= or ignore_index no number here holds); "
    "lo.BoundedLinear keeps rows within feature_bound"
)
LONG_ROW = (
    "a row was longer than feature_bound={bound:.9g}: normalise rows, or use lo.BoundedLinear"
)
LARGE_RESIDUAL = "an output's gradient was longer than {bound:.9g}, so the loss is a different one"
UNBALANCED = "the classes' gradients did not add up to 0, as those of cross-entropy do"
_BUFFER = "the buffer"
_GHOST_OPTIMIZER = DPOptimizerFastGradientClipping
_PRECISE_TYPES = (torch.float32, torch.float64)
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
Tensors = list[torch.Tensor]
_LEAST_COMPARED_NUMBERS = 65_536  # numbers of a parameter that are compared, at least
_WATCHES: weakref.WeakSet[OtherSteps] = weakref.WeakSet()
_NOISED_ONES: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers whose next step is private
_WRAPPED = "the optimizer that Opacus wraps (original_optimizer)"


class WatchedGradients:
    """Counts the rows of a step, and collects evidence against the stated loss.

    `model` clips gradients if the optimizer uses ghost clipping.
    """

    def __init__(self, optimizer: Any, stated: Loss | LinearLoss | None, model: Any = None) -> None:
        self.optimizer = optimizer
        self.found: list[str] = []
        self._clipping = model if is_ghost(optimizer) else optimizer
        self._clips: list[Any] = []
        self._clipped = list(optimizer.params)  # as at first: some may be frozen later
        self._stated = stated
        self.refusal: RefusedTraining | None = None  # the first, which a loop may have caught
        self._forward = None if model is None else _ForwardPasses(model)
        self._others = None if model is None else _OtherState(model, optimizer)
        self._inputs = None if model is None else _Inputs(model)
        self._kept = False
        self._rows = self._passes = 0
        if is_ghost(optimizer):
            self._hook = optimizer.params[0].register_post_accumulate_grad_hook(self._count_pass)
            optimizer.zero_grad = self._between_passes(optimizer.zero_grad)
        elif hasattr(optimizer, "clip_and_accumulate"):
            optimizer.clip_and_accumulate = self._with_inspection(optimizer.clip_and_accumulate)

    def rows(self) -> int:
        """The number of rows since the last call, whose clipped gradients were added up."""
        if self._passes % _BACKWARD_PASSES:
            self._refuse(
                "with ghost clipping, a backward pass was made that does not clip",
                instead="call backward on what the criterion that make_private returned gives",
            )
        sums = [getattr(one, "summed_grad", None) for one in self.optimizer.params]
        self._refuse_non_finite([one for one in sums if one is not None])
        rows, self._rows, self._passes = self._rows, 0, 0
        return rows

    def clips(self) -> list[Any]:
        """The clips of all physical batches since the last call, as the optimizer has them."""
        clips, self._clips = self._clips, []
        return clips

    def refuse_kept_batches(self) -> None:
        """Refuse rows that an earlier batch had already."""
        if self._kept:
            self._refuse(
                "rows of an earlier batch were used again, so their examples are in more steps "
                "than the loader drew them for",
                instead="train on each batch as the loader gives it",
            )

    def refuse_changed_state(
        self, elsewhere: Mapping[int, SavedTensor], *, thorough: bool = False
    ) -> None:
        """Refuse a model that learned more from the rows than the optimizer's parameters.

        `elsewhere` has what other private optimizers made of parameters, by id.
        """
        if self._others is None:
            return
        if (name := self._others.changed(elsewhere, thorough=thorough)) is not None:
            self._refuse(
                f"{name}, which is saved with the model, was changed in training by something else "
                "than the private optimizer: what is written there about the rows has no noise",
                instead="compute it from public rows before training, or keep what is not to be "
                "published in register_buffer(.., persistent=False)",
            )

    def inspect(self) -> None:
        """Count and check the gradients that the optimizer holds."""
        self._clips.append(self._clip())
        self._refuse_several_forward_passes()
        gradients = [one.detach() for one in self.optimizer.grad_samples]
        self._refuse_non_finite(gradients)
        rows = len(gradients[0])
        self._note_batch(rows)
        if rows and self._stated is not None and self._stated.lipschitz is not None:
            lengths = [one.reshape(rows, -1).norm(dim=1).to(torch.float64) for one in gradients]
            norms = torch.stack(lengths, dim=1)
            self._compare(norms.norm(dim=1), self._stated.lipschitz, TOO_LONG)
            if isinstance(self._stated, LinearLoss):
                self._inspect_layer(self._stated, gradients, norms)

    def _note_batch(self, rows: int) -> None:
        """Count the rows of a physical batch, whose forward pass has been made."""
        self._rows += rows
        self._kept |= self._inputs is not None and self._inputs.were_given_earlier(rows)
        if self._others is not None:
            self._others.settle()

    def _with_inspection(self, clip_and_accumulate: Callable[[], None]) -> Callable[[], None]:
        def inspect_and_clip() -> None:
            self.inspect()
            clip_and_accumulate()

        return inspect_and_clip

    def _between_passes(self, zero_grad: Callable[..., None]) -> Callable[..., None]:
        """A `zero_grad` that inspects: ghost clipping calls it between the passes of a batch."""

        def inspect_and_empty(*given: Any, **named: Any) -> None:
            caller = sys._getframe(1)
            if (caller.f_globals.get("__name__"), caller.f_code.co_name) == _GHOST_BACKWARD:
                self._refuse_missing_norms()
                self._refuse_gradients_beside_layers(caller.f_locals["self"].loss_per_sample)
            zero_grad(*given, **named)

        return inspect_and_empty

    def _refuse_missing_norms(self) -> None:
        """Refuse a batch that no gradient of some parameter is from."""
        if not all(hasattr(one, "_norm_sample") for one in self._clipped):
            self._refuse(
                "with ghost clipping, some layer took no part in a batch, and Opacus clips by the "
                "gradients of all layers",
                instead="let all layers that are trained take part in every batch, or use "
                "grad_sample_mode='hooks'",
            )

    def _refuse_gradients_beside_layers(self, loss: torch.Tensor) -> None:
        """Refuse parameters that the loss uses more often than their layers were called.

        Ghost clipping sees what goes through a call of a layer.  The gradient of a penalty in the
        loss, or of a function of the parameters, has no clip.
        """
        if self._forward is None:
            return
        uses, called = parameter_uses(loss), Counter[int]()
        for layer in getattr(self._clipping, "_module", self._clipping).modules():
            for one in layer.parameters(recurse=False):
                called[id(one)] += self._forward.calls(layer)
        if any(uses[id(one)] > called[id(one)] for one in self.optimizer.params):
            self._refuse(
                "the loss depends on parameters beside the calls of their layers, as by a penalty, "
                "and ghost clipping does not clip that part of its gradient",
                instead="leave penalties to weight_decay, let parameters be used by their layers "
                "alone, or use grad_sample_mode='hooks'",
            )

    def _clip(self) -> Any:
        """The clip at this moment."""
        if not hasattr(self._clipping, "max_grad_norm"):
            self._refuse(
                "with ghost clipping, the model that clips is not known",
                instead="let PrivacyEngine.make_private attach the accountant",
            )
        return self._clipping.max_grad_norm

    def _count_pass(self, parameter: Any) -> None:
        """Count a backward pass; the second of a batch sums its clipped gradients."""
        self._passes += 1
        self._clips.append(self._clip())
        if self._passes % _BACKWARD_PASSES:
            return
        self._refuse_several_forward_passes()
        self._refuse_missing_norms()
        norms = [one._norm_sample for one in self._clipped]
        for one in self._clipped:
            del one._norm_sample  # Opacus would clip later batches by it
        self._refuse_non_finite(norms)
        self._note_batch(len(norms[0]))
        if len(norms[0]) and self._stated is not None:
            lengths = torch.stack([one.to(torch.float64) for one in norms], dim=1)
            self._compare(lengths.norm(dim=1), self._stated.lipschitz, TOO_LONG)

    def _refuse(self, why: str, *, instead: str) -> NoReturn:
        self.refusal = self.refusal or RefusedTraining(why, instead=instead)
        raise RefusedTraining(self.refusal.why, instead=self.refusal.instead)

    def _refuse_non_finite(self, tensors: list[torch.Tensor]) -> None:
        """Refuse nan and inf, which no clip bounds and no noise hides: they stay in the model."""
        if not all(bool(torch.isfinite(one).all()) for one in tensors):
            self._refuse(
                "the gradient of an example is nan or infinite, which clipping does not bound and "
                "noise does not hide",
                instead="replace such values in each row by itself before training, as "
                "torch.nan_to_num(rows, 0.0, 0.0, 0.0) does, or take smaller steps if the model "
                "itself grew without bound",
            )

    def _refuse_several_forward_passes(self) -> None:
        if self._forward is not None and (passes := self._forward.take()) > 1:
            self._refuse(
                f"{passes} forward passes were made for one batch: Opacus adds up their gradients, "
                "and an example may be in each of them",
                instead="make one forward pass for each batch (inside the model, if a loss needs "
                "more of the same rows), others under torch.no_grad(), and use BatchMemoryManager "
                "where memory does not suffice",
            )

    def _inspect_layer(
        self, loss: LinearLoss, gradients: list[torch.Tensor], norms: torch.Tensor
    ) -> None:
        """Check gradients of a linear layer: residuals times rows, and residuals for the bias."""
        shapes = [tuple(one.shape[1:]) for one in gradients]
        if loss.mismatch(shapes) is not None:
            return
        if loss.bias:
            weight = 0 if len(shapes[0]) == 2 else 1
            residuals = norms[:, 1 - weight]
            self._compare(residuals, loss.residual_bound, LARGE_RESIDUAL)
            rounding = _TOLERANCE * loss.feature_bound * loss.residual_bound
            excess = norms[:, weight] - loss.feature_bound * residuals
            self._compare(excess, rounding, LONG_ROW, shown=loss.feature_bound)
        if loss.outputs > 1:
            sums = torch.stack(
                [
                    one.sum(dim=1).flatten(1).norm(dim=1) if one.dim() > 2 else one.sum(dim=1).abs()
                    for one in gradients
                ]
            )
            self._compare(sums.flatten(), _TOLERANCE * loss.lipschitz, UNBALANCED)

    def _compare(
        self, found: torch.Tensor, bound: float | None, why: str, shown: float | None = None
    ) -> None:
        if bound is None or bool((found <= bound * (1.0 + _TOLERANCE)).all()):
            return
        reason = why.format(bound=bound if shown is None else shown)
        if reason not in self.found:
            self.found.append(reason)


def parameter_uses(loss: torch.Tensor) -> Counter[int]:
    """The number of uses of each parameter, by its id, in the computation of a tensor."""
    uses: Counter[int] = Counter()
    waiting = [] if loss.grad_fn is None else [loss.grad_fn]
    seen = set(waiting)
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if hasattr(node, "variable"):
                uses[id(node.variable)] += 1
            elif node is not None and node not in seen:
                seen.add(node)
                waiting.append(node)
    return uses


class _ForwardPasses:
    """The number of forward passes through a model that a backward pass may go through.

    It holds nothing but numbers, so that models with its hooks can be copied and saved.
    """

    def __init__(self, model: Any) -> None:
        # Hooks of Opacus ignore layers that are not in training; expanded weights do not.
        self._ignores_evaluation = hasattr(model, "hooks_enabled")
        self._depth = 0  # of those that may be differentiated
        self._open: list[bool] = []  # which of all modules that were entered
        self._again = 0
        self._layers: dict[int, int] = {}  # by the id of a layer that was called by itself
        self._calls: Counter[int] = Counter()  # by the id of a layer, wherever it was called
        whole = getattr(model, "_module", model)
        for one in whole.modules():
            if one is whole or next(one.parameters(recurse=False), None) is not None:
                one.register_forward_pre_hook(self._begin)
                one.register_forward_hook(self._end, always_call=True)
        self._whole, self._passes = id(whole), 0

    def take(self) -> int:
        """The number since the last call."""
        passes = max(self._passes + max(self._layers.values(), default=0), self._again)
        self._passes = self._again = 0
        self._layers.clear()
        self._calls.clear()
        return passes

    def calls(self, module: Any) -> int:
        """The calls of a module since the last `take` that a backward pass may go through."""
        return self._calls[id(module)]

    def _begin(self, module: Any, _: Any) -> None:
        # What is inside may be in training, or differentiated, all the same.
        evaluated = self._ignores_evaluation and not module.training
        # Frozen layers have no gradients of examples that could add up.
        with torch._C.DisableTorchFunctionSubclass():  # expanded weights tell nothing of themselves
            frozen = id(module) != self._whole and not any(
                one.requires_grad for one in module.parameters()
            )
        ignored = evaluated or frozen or not torch.is_grad_enabled()
        self._open.append(not ignored)
        self._depth += not ignored
        backward = torch._C._current_graph_task_id() != -1
        if not ignored and not backward:
            self._calls[id(module)] += 1
        if ignored or self._depth > 1:
            return
        if id(module) != self._whole:
            if not backward:
                self._layers[id(module)] = self._layers.get(id(module), 0) + 1
        elif backward:
            self._again += 1
        else:
            self._passes += 1

    def _end(self, *_: Any) -> None:
        self._depth -= bool(self._open and self._open.pop())


class _Inputs:
    """The memory of the tensors that a model was given, as long as it is in use.

    It holds no tensor, and gives its references to no copy.
    """

    def __init__(self, model: Any) -> None:
        self._now: list[_Input] = []
        self._earlier: dict[tuple[Any, ...], tuple[StorageWeakRef, int]] = {}
        whole = getattr(model, "_module", model)
        whole.register_forward_pre_hook(self._begin, with_kwargs=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"_now": [], "_earlier": {}}

    def were_given_earlier(self, rows: int) -> bool:
        """Whether the rows of one batch were, unchanged; the next call is about the next batch."""
        # Other inputs may be the same for all batches: a mask, a scale, a first state.
        asked = [one for one in self._now if one.shape[:1] == (rows,)] or self._now
        known = [self._earlier.get(one.where, (None, -1))[1] == one.writes for one in asked]
        self._earlier |= {one.where: (one.memory, one.writes) for one in self._now}
        self._now = []
        if len(self._earlier) > _INPUTS:
            alive = {key: one for key, one in self._earlier.items() if not one[0].expired()}
            self._earlier = alive
        return rows > 0 and bool(known) and all(known)

    def _begin(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            self._now += [
                _Input.of(one)
                for one in tree_leaves((given, named))
                if isinstance(one, torch.Tensor) and one.numel() and one.layout == torch.strided
            ]


class _Input(NamedTuple):
    """A tensor that a model was given, by its memory, whose name is not given anew meanwhile."""

    where: tuple[Any, ...]
    memory: StorageWeakRef
    shape: tuple[int, ...]
    writes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Input:
        memory = StorageWeakRef(tensor.untyped_storage())
        shape = tuple(tensor.shape)
        where = memory.cdata, tensor.storage_offset(), tensor.numel()
        return cls(where, memory, shape, write_count(tensor))


class _OtherState:
    """Whether what is saved with a model beside the optimizer's parameters changed in training.

    It holds no tensor, so that models with its hook can be copied.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        whole = getattr(model, "_module", model)
        self._of = weakref.ref(whole)
        self._trained = {id(one) for one in optimizer.params}
        self._first: dict[str, SavedTensor] | None = None
        self._last: dict[str, SavedTensor] = {}  # after the last forward pass before training
        self._settled = False
        whole.register_forward_pre_hook(self._begin)
        whole.register_forward_hook(self._end, always_call=True)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_of": None, "_first": None, "_last": {}}

    def settle(self) -> None:
        """Note that the first batch is part of the training."""
        self._settled = True

    def changed(
        self, elsewhere: Mapping[int, SavedTensor] | None = None, *, thorough: bool = False
    ) -> str | None:
        """The name of one part that changed; None if none did, or no forward pass was seen.

        `elsewhere` has what other private optimizers made of parameters, by id.  Writes that torch
        does not count are found in buffers and, if `thorough`, in parameters.
        """
        whole = None if self._of is None else self._of()
        if whole is None or self._first is None:
            return None
        parts = dict(self._parts(whole))
        for name in sorted(parts.keys() | self._first.keys()):
            first, now = self._first.get(name), parts.get(name)
            if elsewhere and now is not None:
                first = elsewhere.get(id(now), first)
            look = thorough or name.startswith(_BUFFER)
            if first is None or now is None or not first.is_that_of(now, thorough=look):
                return name
        return None

    def _begin(self, module: Any, _: Any) -> None:
        if self._settled or self._of is None:
            return
        # What changes between forward passes before the first batch is loaded.
        now = {name: SavedTensor.of(one) for name, one in self._parts(module)}
        first = self._first or now
        self._first = {
            name: first[name]
            if name in first and name in self._last and self._last[name].content == one.content
            else one
            for name, one in now.items()
        }

    def _end(self, module: Any, *_: Any) -> None:
        if not self._settled and self._of is not None:
            self._last = {name: SavedTensor.of(one) for name, one in self._parts(module)}

    def _parts(self, module: Any) -> Iterator[tuple[str, Any]]:
        # Not by state_dict, which cannot read parameters that expanded weights stand for.
        for path, part in module.named_modules():
            inside = f"{path}." if path else ""
            for name, one in part._buffers.items():
                if one is not None and name not in part._non_persistent_buffers_set:
                    yield f"{_BUFFER} {inside + name!r}", one
            for name, one in part._parameters.items():
                # Expanded weights stand for a parameter while the model runs.
                held = None if one is None else vars(one).get("orig_weight", one)
                if held is not None and id(held) not in self._trained:
                    yield f"the parameter {inside + name!r}", held


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
    return type(optimizer) is _GHOST_OPTIMIZER


def read_step(optimizer: Any, clips: Iterable[Any] = ()) -> OptimizerStep:
    """The settings of the next step, whose physical batches were clipped by `clips`.

    Its clip is the largest of them, and its noise multiplier is in units of that.  Raises
    `RefusedTraining` if the sensitivity is unknown.
    """
    if type(optimizer) not in (DPOptimizer, _GHOST_OPTIMIZER):
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
    if any(one.dtype not in _PRECISE_TYPES for one in optimizer.params):
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


class SavedTensor(NamedTuple):
    """A tensor as it was: by its place and the writes that torch counts, and by its content."""

    where: tuple[int, int]
    kind: torch.dtype
    content: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> SavedTensor:
        # Of a large one some numbers, evenly: who writes to it hardly leaves out just these.
        flat = tensor.detach().reshape(-1)
        content = digest_of([flat[:: max(1, len(flat) // _LEAST_COMPARED_NUMBERS)]])
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
        _NOISED_ONES.add(self.optimizer.original_optimizer)

    def refuse_bare_steps(self) -> None:
        """Refuse if a step without noise was made after the last private one."""
        if self._begun and self._bare and self._found is not None:
            raise _other_step(self._found, "after the last private step")

    def refuse_unseen_steps(self) -> None:
        """Refuse if the wrapped optimizer made steps, but no private step."""
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


@cache
def _watch_all_optimizers() -> None:
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _before_step(stepping: Any, *_: Any) -> None:
    noised, owner = stepping in _NOISED_ONES, _stepping_now(stepping)
    _NOISED_ONES.discard(stepping)
    for watch in list(_WATCHES):
        others = owner is not None and owner is not watch.optimizer and _adds_noise(owner)
        watch.saw(stepping, private=noised or others)


def _after_step(stepping: Any, *_: Any) -> None:
    for watch in list(_WATCHES):
        watch.saw_end(stepping)


def _adds_noise(optimizer: DPOptimizer) -> bool:
    """Whether an optimizer adds noise, and tells an accountant of each of its steps."""
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
