"""The number of rows in a step, their clips, and checks of gradients against the stated loss.

`DPOptimizer` gets a `clip_and_accumulate` that inspects the gradients of examples before they are
clipped, once for each physical batch.  Ghost clipping never holds them.  There, a hook on the first
parameter counts backward passes, two for each batch, and reads the norms.

A logical batch of several physical ones is clipped part by part, and its noise is drawn at the end,
by the clip of that time; with ghost clipping the model has a clip of its own, which schedulers do
not change.  So the largest clip of a step is recorded.

The user states the loss and the bound on rows.  Gradients cannot prove these, only refute them; if
they do, only composition is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lastiterate.errors import RefusedTraining
from lastiterate.opacus.linear_loss import LinearLoss
from lastiterate.opacus.optimizer_step import is_ghost
from lastiterate.run.loss import Loss

_TOLERANCE = 1e-3  # relative to what is stated; single precision needs a hundredth of that
_BACKWARD_PASSES = 2  # of a batch, with ghost clipping
TOO_LONG = (
    "a gradient was longer than lipschitz={bound:.9g} before clipping, so rows are longer than "
    "stated or the loss is a different one; lo.BoundedLinear keeps rows within feature_bound"
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
        self._stated = stated
        self._rows = self._passes = 0
        if is_ghost(optimizer):
            self._hook = optimizer.params[0].register_post_accumulate_grad_hook(self._passed)
        elif hasattr(optimizer, "clip_and_accumulate"):
            optimizer.clip_and_accumulate = self._inspecting(optimizer.clip_and_accumulate)

    def rows(self) -> int:
        """The number of rows since the last call."""
        if self._passes % _BACKWARD_PASSES:
            raise RefusedTraining(
                "with ghost clipping, a backward pass was made that does not clip",
                instead="call backward on what the criterion that make_private returned gives",
            )
        rows, self._rows, self._passes = self._rows, 0, 0
        return rows

    def clips(self) -> list[Any]:
        """The clips of all physical batches since the last call, as the optimizer has them."""
        clips, self._clips = self._clips, []
        return clips

    def inspect(self) -> None:
        """Count and check the gradients that the optimizer holds."""
        self._clips.append(self._clip())
        gradients = [one.detach() for one in self.optimizer.grad_samples]
        rows = len(gradients[0])
        self._rows += rows
        if rows and self._stated is not None and self._stated.lipschitz is not None:
            lengths = [one.reshape(rows, -1).norm(dim=1).to(torch.float64) for one in gradients]
            norms = torch.stack(lengths, dim=1)
            self._compare(norms.norm(dim=1), self._stated.lipschitz, TOO_LONG)
            if isinstance(self._stated, LinearLoss):
                self._inspect_layer(self._stated, gradients, norms)

    def _inspecting(self, clip_and_accumulate: Callable[[], None]) -> Callable[[], None]:
        def inspect_and_clip() -> None:
            self.inspect()
            clip_and_accumulate()

        return inspect_and_clip

    def _clip(self) -> Any:
        """The clip at this moment."""
        if not hasattr(self._clipping, "max_grad_norm"):
            raise RefusedTraining(
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
        params = self.optimizer.params
        norms = [one._norm_sample for one in params if hasattr(one, "_norm_sample")]
        if len(norms) < len(params):
            raise RefusedTraining(
                "with ghost clipping, the gradients of a batch cannot be counted",
                instead="use grad_sample_mode='hooks'",
            )
        self._rows += len(norms[0])
        if len(norms[0]) and self._stated is not None:
            lengths = torch.stack([one.to(torch.float64) for one in norms], dim=1)
            self._compare(lengths.norm(dim=1), self._stated.lipschitz, TOO_LONG)

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
