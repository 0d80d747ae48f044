"""How step sizes change over a run: not at all, or linearly to a tenth."""

import math
from dataclasses import dataclass

import numpy as np

from lastiterate.run.optimizer import Schedule


@dataclass(frozen=True)
class StepShape:
    """How step sizes change over a run, and what goes with that."""

    last: float  # in units of the first
    share: float  # of the sum of step sizes
    least_batch: int
    release_worth: float  # epochs

    @property
    def steps(self) -> float:
        """How many there are to one of a run of the longest."""
        return 2.0 * self.share / (1.0 + self.last)

    def schedules(self, step: float, noise: float, steps: int) -> tuple[Schedule, Schedule]:
        """Step sizes and noise of gradients: one for all, or one for each step."""
        if self.last == 1.0:
            return step, noise
        sizes = np.linspace(1.0, self.last, steps)
        return tuple((step * sizes).tolist()), tuple((noise / np.sqrt(sizes)).tolist())

    def release_noise(self, step_noise: float, epoch: int) -> float:
        """Release noise equal to that of `release_worth` more epochs of steps of mean variance."""
        return step_noise * math.sqrt(self.release_worth * epoch * (1.0 + self.last) / 2.0)


EVEN = StepShape(last=1.0, share=1.0, least_batch=16, release_worth=0.5)
FALLING = StepShape(last=0.1, share=0.8, least_batch=8, release_worth=0.05)
