"""The planned run, which `make_private_with_epsilon` does not tell its accountant beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.opacus.described_run import Watched
from lastiterate.opacus.optimizer_step import SMALLER_LAST_BATCH, Step, not_plain_settings
from lastiterate.opacus.watched_loader import SHUFFLED, Batches, WatchedLoader


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
        """The run of these steps by the plan; composition where the plan does not say enough."""
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
        batches = self._batches(history[0][1])
        divisor = max(int(batches.examples * (1 / batches.per_pass)), 1)  # as Opacus computes it
        steps = [
            Step(size, decay, _check.number("noise_multiplier", noise, above=0.0), clip, divisor)
            for noise, _, times in history
            for _ in range(times)
        ]
        passes = [1 + k // batches.per_pass for k in range(len(steps))]
        if not batches.even:
            reasons.append(SMALLER_LAST_BATCH)
        return Watched(steps, passes, batches, True, reasons)

    def _batches(self, rate: float) -> Batches:
        if self.data_loader is None:
            each = max(1, round(1.0 / rate))
            if self.poisson_sampling:
                return Batches.poisson(each, rate, each)
            return Batches(SHUFFLED, each, each, 1)
        read = WatchedLoader.of(self.data_loader).batches
        if not self.poisson_sampling:
            return read
        return Batches.poisson(read.examples, 1 / read.per_pass, read.per_pass)
