"""Training and then forgetting, against never having seen: what an unlearning has to survive.

World 1 trains with the examples that go, and then takes the extra steps without them; in world 0
they were never part of any sum.  As in `own_trainer`, all others have features 0, and those that go
are in the batch that the last step of the training sees, where the order is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.audit.own_trainer import OwnTrainer
from lastiterate.audit.trials import Seeds
from lastiterate.certificate.verify import verified_certificate
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import Published, noisy_descent
from lastiterate.train.objectives import Objective
from lastiterate.unlearn.unlearning_result import Unlearning


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
        return np.array([self._released(data, int(seed)) for seed in seeds])

    def _released(self, data: list[Examples], seed: int) -> Array:
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


def described_by(
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
