r"""Extra steps without the removed examples, as noise on the release of the training.

T steps are trained and the result is published.  Then the gradients of the removed examples
are set to 0 (sums are still divided by the batch size, the penalty stays) and K steps follow, from
the published parameters and on batches drawn anew.  Against a training in which those gradients had
been 0 from the start, the first T steps differ as two adjacent runs do, and the last K not at all:
they contract a distance z to c z and add noise n.  A shift by z over the noise of these steps costs
:math:`z^2/W` with

.. math:: W = \rho^2 + n^2 (c^{-2} + c^{-4} + \dots + c^{-2K}) + \rho'^2 c^{-2K},

where rho and rho' are the noise on the first and the last release.  A single release with noise
:math:`\sqrt W` has the same cost.  So every bound on the last iterate of the run with that noise on
release is a bound on the model after unlearning.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from lastiterate._numerics.powers import inverse_power, log_of, sum_of_inverse_powers
from lastiterate._numerics.rounding import TENS_OF_THOUSANDS_OF_ROUNDINGS, down
from lastiterate.bounds import quantities
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.errors import NoBoundApplies
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.rules import FixedOrder, SampledWithoutReplacement
from lastiterate.run.loss import Loss
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun

MOST_STEPS = 10**12
_LARGEST_NOISE = 1e150


class ExtraSteps:
    """Steps after the training, without the removed examples."""

    def __init__(
        self,
        run: TrainingRun,
        *,
        step_size: float,
        noise_std: float,
        release: float,
        rule: BatchRule,
    ) -> None:
        self._first_release = run.release_noise_std
        self._step = run.replace(
            loss=_loss_without_the_removed(run),
            batches=_rule(rule, 1),
            steps=1,
            step_size=step_size,
            noise_std=noise_std,
            release_noise_std=release,
        )
        reasons = CATALOGUE["fixed-order/convex"].unmet(self._step)
        if reasons:
            raise NoBoundApplies(self._step, {"extra steps, each a contraction": reasons})
        self._log_c = log_of(quantities.constant_gap(self._step))

    def as_run(self, steps: int) -> TrainingRun:
        """The run of `steps` extra steps (at least one), from the published parameters."""
        return self._step.replace(batches=_rule(self._step.batches, steps), steps=steps)

    def as_release_noise(self, steps: int) -> float:
        """sqrt(W), rounded down."""
        if steps == 0:
            return self._first_release
        own = last_of(self._step.step_size) * last_of(self._step.noise_std)
        accumulated = own * math.sqrt(sum_of_inverse_powers(2.0 * self._log_c, steps))
        again = self._step.release_noise_std * inverse_power(self._log_c, steps)
        noise = math.hypot(self._first_release, accumulated, again)
        return min(down(noise, TENS_OF_THOUSANDS_OF_ROUNDINGS), _LARGEST_NOISE)

    def steps_for_noise(self, noise: float) -> int | None:
        """The least number of steps equivalent to this release noise; None beyond `MOST_STEPS`."""
        few, many = 0, 1
        while self.as_release_noise(many) < noise:
            few, many = many, 2 * many
            if few > MOST_STEPS:
                return None
        while many - few > 1:
            middle = (few + many) // 2
            enough = self.as_release_noise(middle) >= noise
            few, many = (few, middle) if enough else (middle, many)
        return many


def last_of(schedule: Schedule) -> float:
    """The last value of a schedule."""
    return schedule[-1] if isinstance(schedule, tuple) else schedule


def _loss_without_the_removed(run: TrainingRun) -> Loss:
    """The loss in the extra steps: where gradients are set to 0, only the penalty surely curves."""
    if run.adjacency == "replace":
        return run.loss
    return replace(run.loss, strong_convexity=run.loss.regulariser)


def _rule(rule: BatchRule, steps: int) -> BatchRule:
    if not rule.exact_size:
        # Steps on batches of a fixed size contract without a doubt.
        return SampledWithoutReplacement(rule.examples, rule.batch_size)
    if rule.any_length:
        return rule
    return FixedOrder(rule.examples, rule.batch_size, positions=tuple(range(1, steps + 1)))


_MOST_NOISE = 1e149
_FARTHEST = 20.0  # logarithms beyond this are used for their sign only


def least_extra_steps(
    steps: ExtraSteps, epsilon_after: Callable[[int], float], target: float, *, start: int = 1
) -> int | None:
    """The least number of steps that meets the target; None beyond `MOST_STEPS`.

    The search evaluates epsilon there and at one step less.  Epsilon falls about as fast as the
    equivalent release noise grows, so a line through logarithms predicts the next point.
    """
    low, high = -1, MOST_STEPS + 1  # the target is not met at low, and met at high
    values: dict[int, float] = {}
    many, rounds = start, 0
    while True:
        values[many] = value = _log_ratio(epsilon_after(many), target)
        low, high = (low, many) if value <= 0.0 else (many, high)
        if high - low == 1:
            return high if high <= MOST_STEPS else None
        rounds += 1
        if high > MOST_STEPS:
            farther = steps.steps_for_noise(_noise(steps, low, values[low] * (1.0 + rounds / 4.0)))
            many = MOST_STEPS if farther is None else min(max(farther, low + 1), MOST_STEPS)
        elif rounds % 5 == 0:
            many = (low + high) // 2
        else:
            many = min(max(_between(steps, low, high, values), low + 1), high - 1)


def _noise(steps: ExtraSteps, many: int, more: float) -> float:
    """The release noise equivalent to `many` steps, times e^`more`."""
    factor = math.exp(min(max(more, -_FARTHEST), _FARTHEST))
    return min(steps.as_release_noise(max(many, 1)) * factor, _MOST_NOISE)


def _between(steps: ExtraSteps, low: int, high: int, values: dict[int, float]) -> int:
    """The steps at which a line through known log epsilons, by log noise, meets the target."""
    slope = 1.0
    first, last = (steps.as_release_noise(many) for many in (max(low, 0), high))
    if low >= 0 and 0.0 < first < last and values[low] < _FARTHEST and values[high] > -_FARTHEST:
        slope = (values[low] - values[high]) / math.log(last / first)
    found = steps.steps_for_noise(_noise(steps, high, values[high] / slope))
    return high - 1 if found is None else found


def _log_ratio(value: float, target: float) -> float:
    if value == 0.0:
        return -math.inf
    return math.log(value / target) if value < math.inf else math.inf
