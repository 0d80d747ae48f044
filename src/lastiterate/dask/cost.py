r"""What a step costs on a cluster, and the batches that are worth it.

A step sends the parameters to W workers and a gradient back from each, 8 dK bytes either way for d
parameters of K outputs, and takes

.. math:: s + \frac{2 \cdot 8 d K W}{B} + \frac{2 b d K}{W F}

seconds: `step_seconds` s for messages, however short; B bytes a second on the driver's network;
and two products with the b rows of a batch at F multiplications and additions a second.  Steps that
compute for less than s gain nothing from smaller batches.  So a batch has at least the rows that
keep workers busy for `step_seconds`, and passes over the data that fit into the time of the
messages are not counted: `epochs` left open is 20, or as many as these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lastiterate.run.batches import RULES
from lastiterate.train.defaults import steps_asked_for
from lastiterate.train.objectives import Objective

STEP_SECONDS = 0.02
RATE = 1e9  # multiplications and additions a second, of one worker
_PASSES = 20
_LEAST_BATCH = 16


@dataclass(frozen=True)
class StepCost:
    """Seconds and bytes of one step."""

    features: int
    outputs: int
    workers: int
    step_seconds: float = STEP_SECONDS
    rate: float = RATE
    network: float = math.inf  # bytes a second, of the driver

    @property
    def bytes(self) -> float:
        """That the driver sends and receives."""
        return 2.0 * 8.0 * self.features * self.outputs * self.workers

    @property
    def hidden_rows(self) -> int:
        """How many rows are computed while messages are under way."""
        return math.ceil(
            self.step_seconds * self.rate * self.workers / (2.0 * self.features * self.outputs)
        )

    def seconds(self, batch_size: int) -> float:
        """Of one step."""
        products = 2.0 * batch_size * self.features * self.outputs
        return self.step_seconds + self.bytes / self.network + products / (self.workers * self.rate)


def affordable(
    settings: Any, objective: Objective, cost: StepCost, *, examples: int, radius: float, block: int
) -> tuple[int | None, int]:
    """Batch size and most passes for settings that leave them open, from public quantities.

    Batches of more than a `block` of rows are whole numbers of these.
    """
    steps = steps_asked_for(objective, settings, examples=examples, radius=radius)
    passes = settings.epochs
    if passes is None:
        passes = max(_PASSES, math.ceil(steps * min(cost.hidden_rows, examples) / examples))
    size = settings.batch_size
    if size is None and RULES[settings.batches].ordered:
        size = max(examples // math.ceil(steps / passes), cost.hidden_rows, _LEAST_BATCH)
        size = min(-(-size // block) * block, examples)
    return size, passes
