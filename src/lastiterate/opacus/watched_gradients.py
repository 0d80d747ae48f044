"""The number of rows in a step, their clips, and checks of gradients against the stated loss.

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

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from lastiterate.errors import RefusedTraining
from lastiterate.opacus.expected_state import SavedTensor
from lastiterate.opacus.linear_loss import LinearLoss
from lastiterate.opacus.optimizer_step import is_ghost
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
            self._hook = optimizer.params[0].register_post_accumulate_grad_hook(self._passed)
            optimizer.zero_grad = self._between_passes(optimizer.zero_grad)
        elif hasattr(optimizer, "clip_and_accumulate"):
            optimizer.clip_and_accumulate = self._inspecting(optimizer.clip_and_accumulate)

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
        """Refuse rows that were those of an earlier batch, too."""
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

    def _inspecting(self, clip_and_accumulate: Callable[[], None]) -> Callable[[], None]:
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

    def _passed(self, parameter: Any) -> None:
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
    """How often each parameter, by its id, is used in what a tensor was computed from."""
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
        """The calls of a module since then that a backward pass may go through."""
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


_BUFFER = "the buffer"
