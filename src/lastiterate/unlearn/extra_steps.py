r"""Extra steps without the examples that must go, as noise on the release of the training.

T steps are trained and the result is published.  Then the gradients of the examples that must go
are set to 0 (sums are still divided by the batch size, the penalty stays) and K steps follow, from
the published parameters and on batches drawn anew.  Against a training in which those gradients had
been 0 from the start, the first T steps differ as two adjacent runs do, and the last K not at all:
they contract a distance z to c z and add noise n.  Paying for z with the noise of these steps costs
:math:`z^2/W` with

.. math:: W = \rho^2 + n^2 (c^{-2} + c^{-4} + \dots + c^{-2K}) + \rho'^2 c^{-2K},

where rho and rho' are the noise on the first and the last release.  That is what a single release
with noise :math:`\sqrt W` costs.  So what is certified of the run with that noise on release is
certified of the model that has forgotten, by every bound for the last iterate.
"""

import math
from dataclasses import replace

from lastiterate._numerics.geometric import inverse_power, log_of, sum_of_inverse_powers
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
    """Steps after the training, of which some examples are no longer part."""

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

    def described(self, steps: int) -> TrainingRun:
        """So many of them (at least one), as a run that begins with what was published."""
        return self._step.replace(batches=_rule(self._step.batches, steps), steps=steps)

    def as_release_noise(self, steps: int) -> float:
        """sqrt(W), rounded down."""
        if steps == 0:
            return self._first_release
        own = last_of(self._step.step_size) * last_of(self._step.noise_std)
        paid = own * math.sqrt(sum_of_inverse_powers(2.0 * self._log_c, steps))
        again = self._step.release_noise_std * inverse_power(self._log_c, steps)
        noise = math.hypot(self._first_release, paid, again)
        return min(down(noise, TENS_OF_THOUSANDS_OF_ROUNDINGS), _LARGEST_NOISE)

    def worth(self, noise: float) -> int | None:
        """The least number that is worth so much noise on release; None beyond `MOST_STEPS`."""
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
