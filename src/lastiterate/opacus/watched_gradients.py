"""How many rows a step adds up, and whether their gradients are what is said of the loss.

`DPOptimizer` is given a `clip_and_accumulate` that looks at gradients of examples before they are
clipped, once for each physical batch.  Ghost clipping never holds these: there the first parameter
is given a hook that counts backward passes, two for each batch, and finds the norms.

That rows are within their bound, and the loss the one that was named, is for the user to state.
Gradients cannot prove it, only refute it, and what refutes it makes composition the answer.
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
    "a gradient was longer than lipschitz={bound:.9g} before clipping, so that rows are longer "
    "than stated or the loss is another; lo.BoundedLinear keeps rows within feature_bound"
)
LONG_ROW = (
    "a row was longer than feature_bound={bound:.9g}: normalise rows, or use lo.BoundedLinear"
)
LARGE_RESIDUAL = "an output's gradient was longer than {bound:.9g}, so that the loss is another"
UNBALANCED = "the classes' gradients did not add up to 0, as those of cross-entropy do"


class WatchedGradients:
    """Counts the rows of a step, and keeps what was seen against what is said of the loss."""

    def __init__(self, optimizer: Any, stated: Loss | LinearLoss | None) -> None:
        self.optimizer = optimizer
        self.found: list[str] = []
        self._stated = stated
        self._rows = self._passes = 0
        if is_ghost(optimizer):
            self._hook = optimizer.params[0].register_post_accumulate_grad_hook(self._passed)
        elif hasattr(optimizer, "clip_and_accumulate"):
            optimizer.clip_and_accumulate = self._looking(optimizer.clip_and_accumulate)

    def rows(self) -> int:
        """How many were added up since the last step that asked."""
        if self._passes % _BACKWARD_PASSES:
            raise RefusedTraining(
                "with ghost clipping, a backward pass was made that does not clip",
                instead="call backward on what the criterion that make_private returned gives",
            )
        rows, self._rows, self._passes = self._rows, 0, 0
        return rows

    def look(self) -> None:
        """Count, and look at, the gradients that the optimizer holds."""
        gradients = [one.detach() for one in self.optimizer.grad_samples]
        rows = len(gradients[0])
        self._rows += rows
        if rows and self._stated is not None and self._stated.lipschitz is not None:
            lengths = [one.reshape(rows, -1).norm(dim=1).to(torch.float64) for one in gradients]
            norms = torch.stack(lengths, dim=1)
            self._compare(norms.norm(dim=1), self._stated.lipschitz, TOO_LONG)
            if isinstance(self._stated, LinearLoss):
                self._look_at_layer(self._stated, gradients, norms)

    def _looking(self, clip_and_accumulate: Callable[[], None]) -> Callable[[], None]:
        def looked_at() -> None:
            self.look()
            clip_and_accumulate()

        return looked_at

    def _passed(self, parameter: Any) -> None:
        """One backward pass; the second of a batch adds its clipped gradients up."""
        self._passes += 1
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

    def _look_at_layer(
        self, loss: LinearLoss, gradients: list[torch.Tensor], norms: torch.Tensor
    ) -> None:
        """The gradients of a linear layer are residuals times rows, and those of its bias alone."""
        shapes = [tuple(one.shape[1:]) for one in gradients]
        if loss.unlike(shapes) is not None:
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
