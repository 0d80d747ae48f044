"""Training and the extra steps as those see them who are in both."""

from lastiterate.run.batch_rule import BatchRule
from lastiterate.run.batches import Drawn, FixedOrder
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun

_MOST_LISTED = 10**6  # participations, or steps of a schedule


def as_one_run(run: TrainingRun, extra: TrainingRun, *, order_kept: bool) -> list[TrainingRun]:
    """Training and extra steps as those who stay see them; nothing where no run is like that."""
    rule, then = run.batches, extra.batches
    if not rule.exact_size or not then.exact_size:
        return []
    if (rule.examples, rule.batch_size) != (then.examples, then.batch_size):
        return []
    goes_on = rule == then and (
        rule.drawn in (Drawn.NEVER, Drawn.EACH_STEP)
        or (rule.drawn is Drawn.EACH_EPOCH and run.steps % rule.batches_per_epoch == 0)
        or (rule.drawn is Drawn.ONCE and order_kept)
    )
    if goes_on and rule.any_length:
        return [_longer(run, extra, rule)]
    alike = run.is_constant and (run.step_size, run.noise_std) == (extra.step_size, extra.noise_std)
    if not alike or (run.steps + extra.steps) // rule.batches_per_epoch > _MOST_LISTED:
        return []
    # A participation that comes later is never less exposed: the latest places of both orders.
    latest = _latest(rule, run.steps)
    latest += [run.steps + step for step in _latest(then, extra.steps)]
    order = FixedOrder(rule.examples, rule.batch_size, positions=tuple(latest))
    return [_longer(run, extra, order)]


def _latest(rule: BatchRule, steps: int) -> list[int]:
    """The last step of each epoch, counted from 1; of the last epoch, as far as it goes."""
    if not rule.any_length:
        return [int(step) + 1 for step in rule.seen(0, steps)]
    if rule.drawn is Drawn.EACH_STEP:
        return list(range(1, steps + 1))
    length = rule.batches_per_epoch
    ends = list(range(length, steps + 1, length))
    return ends if steps % length == 0 else [*ends, steps]


def _longer(run: TrainingRun, extra: TrainingRun, rule: BatchRule) -> TrainingRun:
    """The noise on the first release is not made use of."""
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
