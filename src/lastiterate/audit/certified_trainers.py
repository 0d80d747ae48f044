"""The library's own trainer and unlearner, on data sets made for a certificate, not from its data.

Every example but one has features 0, and so no gradient but the penalty's.  The one has features as
long as the bound allows, along the only axis.  In the other world it has the opposite target or,
where examples may be left out, features 0.  Near the start its gradient is as long as the clip
allows, so the runs are those of linear losses, which are among the most exposed that a run
describes.  Only the certificate's run, objective and bound on features are used.

For unlearning, world 1 trains with the removed examples and then takes the extra steps without
them; in world 0 they never took part.  In a fixed order they are in the training's last batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.audit.empirical import Seeds
from lastiterate.certificate.verify import verified_certificate
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.data import Examples, bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import Published, noisy_descent
from lastiterate.train.objectives import Objective
from lastiterate.unlearn.unlearning import Unlearning


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


@dataclass(frozen=True)
class OwnUnlearner:
    """`noisy_descent`, stage after stage; a trainer that `empirical.audit` takes.

    `stages` are the training, the extra steps of earlier requests, which see the examples too, and
    last the extra steps of the request that is audited.  `examples` go with it.
    """

    stages: tuple[TrainingRun, ...]
    objective: Objective
    radius: float
    examples: int = 1

    def __call__(self, world: int, seeds: Seeds) -> Array:
        never = self.data(used=False)
        seen = self.data(used=True) if world == 1 else never
        data = [*[seen] * (len(self.stages) - 1), never]
        return np.array([self._released_numbers(data, int(seed)) for seed in seeds])

    def _released_numbers(self, data: list[Examples], seed: int) -> Array:
        randomness = Randomness(SeededBits(seed))
        start, begun = None, 0
        taken: tuple[TrainingRun, ...] = ()
        for run, examples in zip(self.stages, data, strict=True):
            parameters = noisy_descent(run, self.objective, examples, randomness, start)
            begun += run.steps
            taken = (*taken, run)
            start = Published(parameters, begun, taken)
        return parameters.ravel()

    def data(self, *, used: bool) -> Examples:
        """All examples, with those that go or with gradient 0 for them."""
        first = self.stages[0].replace(adjacency="zero-out")
        trainer = OwnTrainer(first, self.objective, self.radius)
        one = trainer.exposed
        rows = np.arange(one, one + self.examples) % first.batches.examples
        examples = trainer.examples(1)
        features, targets = examples.rows.copy(), examples.targets.copy()
        features[rows], targets[rows] = features[one], targets[one]
        silent = np.zeros(len(examples), dtype=bool)
        silent[rows] = not used
        return replace(examples, rows=features, targets=targets, silent=silent)


def trainer_of_certificate(
    certificate: str | Path, *, parameters: Any = None
) -> tuple[OwnTrainer | OwnUnlearner, PrivacyReport | Unlearning]:
    """The trainer or unlearner that a certificate describes, and its guarantee, derived again.

    After unlearning requests it is the last request's unlearner, otherwise the trainer.
    """
    found = verified_certificate(certificate, parameters=parameters)
    done = found.requests.done
    if not done:
        return OwnTrainer(found.report.run, found.objective, found.radius), found.report
    stages = (found.requests.run, *(found.requests.extra_run(one.taken) for one in done))
    unlearner = OwnUnlearner(stages, found.objective, found.radius, done[-1].examples)
    return unlearner, found.requests.request_guarantee(len(done) - 1)
