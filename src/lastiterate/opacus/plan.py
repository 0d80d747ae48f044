"""What `make_private_with_epsilon` cannot tell its accountant, which it asks about noise first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.opacus.described_run import Watched
from lastiterate.opacus.optimizer_step import Step, not_plain_settings
from lastiterate.opacus.watched_loader import POISSON, Batches, WatchedLoader


@dataclass(frozen=True)
class Plan:
    """The optimizer, clip and loader that `make_private_with_epsilon` will be given.

    What is certified later is the training as it took place; a plan that was not kept to only
    misses the target.
    """

    optimizer: Any = None
    max_grad_norm: float | None = None
    data_loader: Any = None
    poisson_sampling: bool = True

    def watched(self, history: list[tuple[float, float, int]]) -> Watched:
        """As if these steps had been made; composition where the plan does not say enough."""
        reasons = []
        decay = size = 0.0
        if self.optimizer is None or self.max_grad_norm is None or self.data_loader is None:
            reasons.append("the plan has no optimizer, max_grad_norm or data_loader")
        else:
            reasons += not_plain_settings(self.optimizer)
            group = self.optimizer.param_groups[0]
            size, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
        clip = 1.0 if self.max_grad_norm is None else self.max_grad_norm
        clip = _check.number("max_grad_norm", clip, above=0.0)
        steps = [
            Step(size, decay, _check.number("noise_multiplier", noise, above=0.0), clip)
            for noise, _, times in history
            for _ in range(times)
        ]
        batches = self._batches(history[0][1])
        passes = [1 + k // batches.per_pass for k in range(len(steps))]
        if not batches.even:
            reasons.append("batch_size does not divide the number of examples")
        return Watched(steps, passes, batches, True, reasons)

    def _batches(self, rate: float) -> Batches:
        if self.data_loader is None:
            each = max(1, round(1.0 / rate))
            kind = POISSON if self.poisson_sampling else "shuffled"
            return Batches(kind, each, each, True)
        read = WatchedLoader.of(self.data_loader).batches
        if not self.poisson_sampling:
            return read
        return Batches(POISSON, read.examples, read.per_pass, read.examples % read.per_pass == 0)
