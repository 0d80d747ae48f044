"""The library's own trainer on a pair of data sets made for its certificate, not from its data.

Every example but one has features 0, and so no gradient but the penalty's; the one has features as
long as the bound allows, along the only axis, and in the other world the opposite target (or, where
examples may be left out, features 0).  Near the start its gradient is as long as the clip allows,
so the runs are those of linear losses, which are among the most exposed that a run describes.
Only what the certificate states is used: the run, the objective and the bound on features.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.audit.trials import Seeds
from lastiterate.certificate.verify import verified_certificate
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.data import Examples, bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Objective


@dataclass(frozen=True)
class OwnTrainer:
    """`noisy_descent` on the pair; a trainer that `empirical.audit` takes."""

    run: TrainingRun
    objective: Objective
    radius: float

    def __call__(self, world: int, seeds: Seeds) -> Array:
        examples = self.examples(world)
        released = [
            noisy_descent(
                self.run, self.objective, examples, Randomness(SeededBits(int(seed)))
            ).ravel()
            for seed in seeds
        ]
        return np.array(released)

    def examples(self, world: int) -> Examples:
        """The data set of a world."""
        count, one = self.run.batches.examples, self.exposed
        rows = np.zeros((count, 1))
        if self.run.adjacency == "replace" or world == 1:
            rows[one] = self.radius
        exposing = self.objective.exposing_targets
        targets = np.full(count, exposing[0])
        targets[one] = exposing[world]
        return bounded(rows, targets, bound=self.radius, intercept=0.0)

    @property
    def exposed(self) -> int:
        """In a fixed order, an example that the last step sees."""
        rule, last = self.run.batches, self.run.steps - 1
        if rule.resampling is not Resampling.NEVER:
            return 0
        position = next(
            i
            for i in range(rule.position_count(last + 1))
            if last in rule.participations(i, last + 1)
        )
        return position * rule.batch_size


def certified_trainer(
    certificate: str | Path, *, parameters: Any = None
) -> tuple[OwnTrainer, PrivacyReport]:
    """The trainer that a certificate describes, and what it certifies, derived again."""
    found = verified_certificate(certificate, parameters=parameters)
    return OwnTrainer(found.report.run, found.objective, found.radius), found.report
