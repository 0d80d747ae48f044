r"""Time and traffic of a step on a cluster, and the batch sizes that are worth them.

A step sends the parameters to W workers and a gradient back from each, 8 dK bytes either way for d
parameters of K outputs, and takes

.. math:: s + \frac{2 \cdot 8 d K W}{B} + \frac{2 b d K}{W F}

seconds: `step_seconds` s for messages, however short; B bytes a second on the driver's network;
and two products with the b rows of a batch at F multiplications and additions a second.  On rows
that one machine could hold, messages are nearly all of it.

Unset settings are chosen as for rows in memory, 20 passes over the data in the number of steps of
`train.defaults`, unless the messages of these steps would take longer than a minute and longer
than the computation.  Then there are fewer steps, on larger batches.  Larger batches alone
would gain nothing: with as many steps, batches of all rows change accuracy by .1 points or less
(docs/dask_measured.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lastiterate.run.batch_rules.rules import RULES
from lastiterate.train.defaults import steps_asked_for
from lastiterate.train.objectives import Objective

STEP_SECONDS = 0.02
RATE = 1e9  # multiplications and additions a second, of one worker
_PASSES = 20
_LEAST_BATCH = 16
_MESSAGES = 60.0  # seconds that messages may take, however short computing is


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
        """The bytes that the driver sends and receives."""
        return 2.0 * 8.0 * self.features * self.outputs * self.workers

    @property
    def hidden_rows(self) -> int:
        """The number of rows that are computed while messages are under way."""
        return math.ceil(
            self.step_seconds * self.rate * self.workers / (2.0 * self.features * self.outputs)
        )

    def computing(self, rows: int) -> float:
        """Seconds that the products with so many rows take."""
        return 2.0 * rows * self.features * self.outputs / (self.workers * self.rate)

    def seconds(self, batch_size: int) -> float:
        """Seconds that one step takes."""
        return self.step_seconds + self.bytes / self.network + self.computing(batch_size)

    def most_steps(self, rows: int) -> int:
        """The steps whose messages take a minute or, if longer, as long as computing `rows`."""
        return max(int(max(_MESSAGES, self.computing(rows)) / self.step_seconds), 1)


def affordable_batches(
    settings: Any, objective: Objective, cost: StepCost, *, examples: int, radius: float, block: int
) -> tuple[int | None, int]:
    """Batch size and most passes for settings that leave them open, from public quantities.

    Batches of more than a `block` of rows are whole numbers of these.
    """
    steps_needed = steps_asked_for(objective, settings, examples=examples, radius=radius)
    size, passes = settings.batch_size, settings.epochs
    known = size if RULES[settings.batches].ordered else examples
    if known is not None:
        if passes is None:
            steps = min(steps_needed, int(_MESSAGES / cost.seconds(known)))
            passes = max(_PASSES, steps // max(examples // max(known, 1), 1))
        return size, passes
    passes = _PASSES if passes is None else passes
    most = cost.most_steps(passes * examples)
    a_pass = math.ceil(min(steps_needed, most) / passes)
    # Rounded up where steps are to be few, else as for rows in memory.
    size = max(-(-examples // a_pass) if steps_needed > most else examples // a_pass, _LEAST_BATCH)
    return min(-(-size // block) * block, examples), passes
