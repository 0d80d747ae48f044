"""Training and extra steps as one run, for the retained examples, which are in both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate._numerics.rounding import at_most
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.rules import FixedOrder, Resampling
from lastiterate.run.domain import Unbounded
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.extra_steps import last_of

_MOST_LISTED = 10**6  # participations, or steps of a schedule


def as_one_run(run: TrainingRun, extra: TrainingRun, *, order_kept: bool) -> list[TrainingRun]:
    """Training and extra steps as one run, for retained examples; empty if that is impossible."""
    rule, then = run.batches, extra.batches
    if not rule.exact_size or not then.exact_size:
        return []
    if (rule.examples, rule.batch_size) != (then.examples, then.batch_size):
        return []
    goes_on = rule == then and (
        rule.resampling in (Resampling.NEVER, Resampling.EACH_STEP)
        or (rule.resampling is Resampling.EACH_EPOCH and run.steps % rule.batches_per_epoch == 0)
        or (rule.resampling is Resampling.ONCE and order_kept)
    )
    if goes_on and rule.any_length:
        return [_longer(run, extra, rule)]
    alike = run.is_constant and (run.step_size, run.noise_std) == (extra.step_size, extra.noise_std)
    if not alike or (run.steps + extra.steps) // rule.batches_per_epoch > _MOST_LISTED:
        return []
    # A participation that comes later is never less exposed: the latest positions of both orders.
    latest = _latest(rule, run.steps)
    latest += [run.steps + step for step in _latest(then, extra.steps)]
    order = FixedOrder(rule.examples, rule.batch_size, positions=tuple(latest))
    return [_longer(run, extra, order)]


@dataclass(frozen=True)
class RequestSteps:
    """The extra steps of one request, and the noise on the release after them."""

    steps: int
    release_noise_std: float


def run_of_retained_examples(run: TrainingRun, then: Sequence[RequestSteps]) -> TrainingRun | None:
    """The run of training and all extra steps, for examples that are in all of them.

    Step size, noise and batches are those of the training, which are constant, and every order is
    drawn anew.  None if no batch rule describes it.
    """
    if not then:
        return run
    rule, lengths = run.batches, [run.steps, *(one.steps for one in then)]
    total = sum(lengths)
    if not (run.is_constant and rule.exact_size and rule.any_length):
        return None
    longer = run.replace(steps=total, release_noise_std=then[-1].release_noise_std)
    whole_epochs = not any(steps % rule.batches_per_epoch for steps in lengths[:-1])
    if rule.resampling is Resampling.EACH_STEP or (
        rule.resampling is Resampling.EACH_EPOCH and whole_epochs
    ):
        return longer
    if total > _MOST_LISTED:
        return None
    if rule.resampling is Resampling.NEVER:
        latest = list(range(total, 0, -rule.batches_per_epoch))[::-1]
    else:
        latest, begun = [], 0
        for steps in lengths:
            latest += [begun + step for step in _latest(rule, steps)]
            begun += steps
    order = FixedOrder(rule.examples, rule.batch_size, positions=tuple(latest))
    return longer.replace(batches=order, noise_std=_with_releases(run, then))


def _with_releases(run: TrainingRun, then: Sequence[RequestSteps]) -> Schedule:
    """The noise schedule in which each release's noise is noise of the last step before it.

    It is unchanged on a bounded domain, where what was published is projected before it goes on.
    The last release is not one of these.
    """
    released = [run.release_noise_std, *(one.release_noise_std for one in then[:-1])]
    if not any(released) or not isinstance(run.domain, Unbounded):
        return run.noise_std
    own, step = last_of(run.noise_std), last_of(run.step_size)
    noises: list[float] = []
    for steps, release in zip([run.steps, *(one.steps for one in then)], released, strict=False):
        both = at_most(math.hypot(own, release / step), ulps=4)
        noises += [own] * (steps - 1) + [both]
    return (*noises, *(own,) * then[-1].steps)


def _latest(rule: BatchRule, steps: int) -> list[int]:
    """The last step of each epoch, counted from 1; of the last epoch, as far as it goes."""
    if not rule.any_length:
        return [int(step) + 1 for step in rule.participations(0, steps)]
    if rule.resampling is Resampling.EACH_STEP:
        return list(range(1, steps + 1))
    length = rule.batches_per_epoch
    ends = list(range(length, steps + 1, length))
    return ends if steps % length == 0 else [*ends, steps]


def _longer(run: TrainingRun, extra: TrainingRun, rule: BatchRule) -> TrainingRun:
    """The longer run; the noise on the first release is not used."""
    if (run.step_size, run.noise_std) == (extra.step_size, extra.noise_std):
        schedules = {}
    else:
        schedules = {
            name: (
                *_every_step(getattr(run, name), run.steps),
                *(getattr(extra, name),) * extra.steps,
            )
            for name in ("step_size", "noise_std")
        }
    return run.replace(
        loss=extra.loss,
        batches=rule,
        steps=run.steps + extra.steps,
        release_noise_std=extra.release_noise_std,
        **schedules,
    )


def _every_step(schedule: Schedule, steps: int) -> tuple[float, ...]:
    return schedule if isinstance(schedule, tuple) else (schedule,) * steps
