"""The exact instance of an unlearning: trained and then unlearned, against never seen.

Only what was done is looked at, not what is certified of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate.lower_bounds.line_maps import IDENTITY, linear
from lastiterate.lower_bounds.line_pair import Pair, Step
from lastiterate.run.schedule import Schedule

if TYPE_CHECKING:
    from lastiterate.unlearn.unlearning import Unlearning


def quadratics(found: Unlearning) -> Pair:
    """Losses with no curvature but the penalty's, for which the laws are known exactly.

    Those that go all pull one way, together, in every last batch of an epoch.
    """
    run, extra = found.run, found.extra
    wait = run.batches.batches_per_epoch if run.batches.exact_size else 1
    seen = set(range(run.steps - 1, -1, -wait))
    steps = []
    for k in range(run.steps):
        size = _at(run.step_size, k)
        apart = found.examples * size * run.sensitivity / run.batches.batch_size
        one = linear(1.0 - size * run.loss.regulariser)
        moved = linear(1.0 - size * run.loss.regulariser, offset=apart if k in seen else 0.0)
        steps.append(Step(one, (one, moved), size * _at(run.noise_std, k)))
    if found.extra_steps == 0:
        return Pair(0.0, steps, release_noise_std=run.release_noise_std)
    if run.release_noise_std > 0.0:
        steps.append(Step(IDENTITY, (IDENTITY, IDENTITY), run.release_noise_std))
    size = _at(extra.step_size, 0)
    one = linear(1.0 - size * extra.loss.regulariser)
    steps += [Step(one, (one, one), size * _at(extra.noise_std, 0))] * found.extra_steps
    return Pair(0.0, steps, release_noise_std=extra.release_noise_std)


def _at(schedule: Schedule, step: int) -> float:
    return schedule[step] if isinstance(schedule, tuple) else schedule
