r"""The extra steps that unlearn examples of a published model, and their guarantee.

T steps are trained and the result is published.  Then the gradients of the removed examples are
set to 0 (sums are still divided by the batch size, the penalty stays) and K steps follow, from
the published parameters and on batches drawn anew.  Against a training in which those gradients
had been 0 from the start, the first T steps differ as two adjacent runs do, and the last K not at
all: they contract a distance z to c z and add noise n.  A shift by z over the noise of these
steps costs :math:`z^2/W` with

.. math:: W = \rho^2 + n^2 (c^{-2} + c^{-4} + \dots + c^{-2K}) + \rho'^2 c^{-2K},

where rho and rho' are the noise on the first and the last release.  A single release with noise
:math:`\sqrt W` has the same cost.  So every bound on the last iterate of the run with that noise
on release is a bound on the model after unlearning.

The retained examples are in both: for them training and extra steps are one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate._display import card, up
from lastiterate._numerics.powers import inverse_power, log_of, sum_of_inverse_powers
from lastiterate._numerics.rounding import TENS_OF_THOUSANDS_OF_ROUNDINGS, at_most, down
from lastiterate._numerics.search import last_count_true
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account, person_mu
from lastiterate.bounds import quantities
from lastiterate.bounds.catalogue import CATALOGUE, given_order
from lastiterate.errors import InvalidParameter, InvalidType, NoBoundApplies, UnreachableTarget
from lastiterate.other_releases import Release
from lastiterate.plot.style import lines
from lastiterate.profile.best import BestProfile
from lastiterate.profile.compose import compose_with_mixture
from lastiterate.profile.gaussian import GaussianMixtureProfile, GaussianProfile
from lastiterate.profile.profile import PrivacyProfile, Protected
from lastiterate.profile.rounded import RoundedProfile
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import FixedOrder
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import Schedule, require_plain_steps
from lastiterate.run.training_run import TrainingRun, Unbounded, if_one_example_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXACT = "Arithmetic: exact. The rounding of floats is not included."
_ROUNDED = "Arithmetic: as computed. The rounding of training and extra steps is included."
_TRAIN_AGAIN = ": train again instead. A penalty (l2 = 0.01) at training makes unlearning cheaper."
MOST_STEPS = 10**12
_MAX_NOISE = 1e150
_MAX_SEARCHED_NOISE = 1e149
_MAX_LOGARITHM = 20.0  # logarithms beyond this are used for their sign only
_MAX_LISTED_STEPS = 10**6  # participations, or steps of a schedule
_PLOTTED_STEPS = 12


def unlearning(
    run: TrainingRun,
    *,
    extra_steps: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    examples: int = 1,
    step_size: float | None = None,
    noise_std: float | None = None,
    release_noise_std: float | None = None,
    order_kept: bool = False,
    batches: BatchRule | None = None,
    other_releases: Sequence[Release] = (),
) -> Unlearning:
    """The guarantee for unlearned examples after extra steps, or the least steps for a target.

    Parameters
    ----------
    run : TrainingRun
        The training.  With adjacency "zero-out" the model is compared with one trained without
        the gradients of the removed examples; with "replace", with one trained on other examples
        instead, which the extra steps then see.
    extra_steps : int, optional
        The number of extra steps.  If a target is given instead, the least number that meets it.
    epsilon, delta : float, optional
        The target for the removed examples.
    examples : int
        The number of examples to remove at once.
    step_size, noise_std, release_noise_std : float, optional
        Step size and noise of the extra steps, and noise on their release; by default those of
        the last step of the training.
    order_kept : bool
        Whether the extra steps continue in the secret order of the training, for batches that are
        shuffled once.  Otherwise they draw a new order, and nothing secret need be kept.
    batches : BatchRule, optional
        The batch rule of the extra steps; by default that of the training.
    other_releases : sequence of Release, optional
        Statistics of the same examples that stay published; unlearning does not undo them.

    Returns
    -------
    Unlearning
        A profile (`epsilon(delta)`, `delta(epsilon)`, `tradeoff`, ..) for the removed examples.

    Raises
    ------
    InvalidParameter
        If a parameter is outside its range, or the run publishes every iterate.
    NoBoundApplies
        If the extra steps are not known to contract.
    UnreachableTarget
        If no number of extra steps meets the target.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=0.26, regulariser=0.01), sensitivity=1.0,
    ...     batches=li.ShuffledEachEpoch(examples=10_000, batch_size=500), steps=800,
    ...     step_size=2.0, noise_std=0.01, adjacency="zero-out")
    >>> found = li.unlearning(run, epsilon=0.1, delta=1e-5)
    >>> found.extra_steps, found.epsilon(1e-5) <= 0.1
    (62, True)
    >>> li.unlearning(run, extra_steps=61).epsilon(1e-5) <= 0.1
    False
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    if run.releases == "every-iterate":
        must_be = (
            "one that publishes its last iterate only (published iterates cannot be unlearned)"
        )
        raise InvalidParameter("run", f"releases={run.releases!r}", must_be=must_be)
    require_plain_steps(run, "unlearning")
    most = run.batches.examples - 1
    many = _check.count("examples", examples, at_least=1, at_most=max(most, 1))
    steps = ExtraSteps(
        run,
        step_size=last_of(run.step_size) if step_size is None else step_size,
        noise_std=last_of(run.noise_std) if noise_std is None else noise_std,
        release=run.release_noise_std if release_noise_std is None else release_noise_std,
        rule=run.batches if batches is None else batches,
    )
    problem = _UnlearningProblem(run, steps, many, order_kept, tuple(other_releases))
    if extra_steps is not None:
        if epsilon is not None or delta is not None:
            must_be = "left out where a target (epsilon, delta) is given"
            raise InvalidParameter("extra_steps", extra_steps, must_be=must_be)
        return problem.after(_check.count("extra_steps", extra_steps, at_least=0))
    if epsilon is None or delta is None:
        missing = "epsilon" if epsilon is None else "delta"
        raise InvalidParameter(missing, None, must_be="given, unless extra_steps is")
    return problem.least(
        _check.target_epsilon("epsilon", epsilon),
        _check.number("delta", delta, above=0.0, below=1.0),
    )


@dataclass(frozen=True)
class _UnlearningProblem:
    run: TrainingRun
    steps: ExtraSteps
    examples: int
    order_kept: bool
    other_releases: tuple[Release, ...]

    def after(self, many: int) -> Unlearning:
        return self._result(many, self._report(many))

    def least(self, epsilon: float, delta: float) -> Unlearning:
        """The result with the fewest extra steps that meet the target, by quick bounds first.

        All bounds together never need more steps than the quick ones alone.
        """
        self._check_other_releases(epsilon, delta)
        reports: dict[int, PrivacyReport] = {}

        def epsilon_after(many: int) -> float:
            reports[many] = self._report(many)
            return reports[many].epsilon(delta)

        def quick_epsilon_after(many: int) -> float:
            return self._report(many, cheaply=True).epsilon(delta)

        start = 1
        if self._bounds is None:
            start = least_extra_steps(self.steps, quick_epsilon_after, epsilon) or 1
        many = least_extra_steps(self.steps, epsilon_after, epsilon, start=start)
        if many is not None:
            return self._result(many, reports[many])
        raise UnreachableTarget(
            f"({epsilon:g}, {delta:g})",
            f"{MOST_STEPS:,} extra steps are not enough",
            possible_with="a penalty (strong convexity), more noise_std in the extra steps, or a "
            "release_noise_std",
        )

    def _result(self, many: int, report: PrivacyReport) -> Unlearning:
        extra = self.steps.as_run(max(many, 1))
        return Unlearning(
            self.run, extra, many, self.examples, self.order_kept, report, self.other_releases
        )

    def _report(self, many: int, *, cheaply: bool = False) -> PrivacyReport:
        report = account(self._with_noise(self.steps.as_release_noise(many)), bounds=self._bounds)
        report = report.cheap() if cheaply or self._needs_whole_curves else report
        if not self.other_releases:
            return report
        more = GaussianMixtureProfile([1.0], [self._other_mu])
        every = {id_: compose_with_mixture(one, more) for id_, one in report.used.items()}
        return replace(report, all=every, other_releases=self.other_releases)

    @property
    def _other_mu(self) -> float:
        """The mu of the other releases, which stay published, for all of the examples."""
        return person_mu(self.other_releases, self._with_noise(self.run.release_noise_std))

    def _check_other_releases(self, epsilon: float, delta: float) -> None:
        """Raise `UnreachableTarget` where the other releases alone use up the target."""
        alone = GaussianProfile(self._other_mu).epsilon(delta) if self.other_releases else 0.0
        if not alone < epsilon:
            kinds = " and ".join(one.kind for one in self.other_releases)
            raise UnreachableTarget(
                f"({epsilon:g}, {delta:g})",
                f"the other releases ({kinds}) stay published, and they alone have epsilon "
                f"{up(alone)} for {self.examples:,} of the examples",
                possible_with="a larger epsilon, fewer examples at once, or training again",
            )

    def _with_noise(self, release_noise: float) -> TrainingRun:
        run = self.run.replace(release_noise_std=release_noise)
        return run if self.examples == 1 else run.replace(examples_per_person=self.examples)

    @property
    def _bounds(self) -> list[str] | None:
        # Bounds for secret positions exchange examples.  Extra steps in the same order would have
        # to exchange them as well.
        kept = self.order_kept and self.run.batches.resampling is Resampling.ONCE
        return given_order() if kept else None

    @property
    def _needs_whole_curves(self) -> bool:
        """Whether whole curves are needed of bounds whose curves are slow."""
        drawn = self.run.batches.resampling
        return bool(
            self.other_releases
            and self.run.batches.exact_size
            and drawn is not Resampling.EACH_STEP
        )


@dataclass(frozen=True, eq=False, repr=False)
class Unlearning(BestProfile):
    """The certified guarantee of a model after unlearning, as a profile for the removed examples.

    Made by `unlearning`, for exact arithmetic.  That of a fitted model (`unlearning_`,
    `plan_unlearning`) includes the rounding of training and extra steps, in all its guarantees.

    Parameters
    ----------
    run : TrainingRun
        The training.
    extra : TrainingRun
        The extra steps.
    extra_steps : int
        Their number.
    examples : int
        The number of examples removed at once.
    order_kept : bool
        Whether the extra steps continue in the order of the training.
    report : PrivacyReport
        The account that gives the guarantee, bound by bound.
    other_releases : tuple of Release
        Statistics of the same examples that stay published.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=0.26, regulariser=0.01), sensitivity=1.0,
    ...     batches=li.Cyclic(examples=10_000, batch_size=500), steps=800,
    ...     step_size=2.0, noise_std=0.01, adjacency="zero-out")
    >>> plan = li.unlearning(run, extra_steps=40)
    >>> plan.epsilon(1e-5) < plan.before.epsilon(1e-5) < plan.both_published.epsilon(1e-5)
    True
    """

    run: TrainingRun
    extra: TrainingRun
    extra_steps: int
    examples: int
    order_kept: bool
    report: PrivacyReport
    other_releases: tuple[Release, ...] = ()

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The profiles of the bounds that apply."""
        return self.report.profiles

    @property
    def protected(self) -> Protected:
        """The change that the guarantee hides: that of all removed examples at once."""
        return self.report.protected._replace(removed=True)

    def epsilon(self, delta: float) -> float:
        """The epsilon for the removed examples.

        Parameters
        ----------
        delta : float
            The delta, in (0, 1).

        Returns
        -------
        float
            The epsilon, rounded up.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun(
        ...     loss=li.Loss(smoothness=1.0, regulariser=0.1), sensitivity=1.0,
        ...     batches=li.FullBatch(examples=100), steps=50, step_size=1.0, noise_std=0.1)
        >>> round(li.unlearning(run, extra_steps=20).epsilon(1e-5), 3) > 0.0
        True
        """
        return self.report.epsilon(delta)

    @cached_property
    def before(self) -> PrivacyProfile:
        """The guarantee, for all examples, of the model published before the extra steps."""
        return self._as_computed(self._training_report)

    @cached_property
    def retained(self) -> PrivacyProfile:
        """The guarantee for retained examples against someone who holds the new model alone."""
        if self.extra_steps == 0:
            return self.before
        known = [account(longer, other_releases=self.other_releases) for longer in self._as_one_run]
        return BestProfile([self.both_published, *map(self._as_computed, known)])

    @cached_property
    def both_published(self) -> PrivacyProfile:
        """The guarantee for retained examples against someone who holds both models.

        For removed examples it is `before`, since the extra steps do not see them.
        """
        if self.extra_steps == 0:
            return self.before
        first, then = self._training_report, self.extra
        if self.order_kept and self.run.batches.resampling is Resampling.ONCE:
            # One secret serves both, so that neither may be averaged over it alone.
            first = account(_in_open_order(self.run), other_releases=self.other_releases)
            then = _in_open_order(then)
        return self._as_computed(first.compose(account(then).cheap()))

    @property
    def share_of_training(self) -> float:
        """The extra steps as a share of the steps of the training."""
        return self.extra_steps / self.run.steps

    def then(
        self,
        *,
        extra_steps: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        examples: int = 1,
    ) -> Unlearning:
        """The guarantee of a later request, for examples that the extra steps have seen.

        The guarantee for examples removed earlier improves with every step.  This plan is of exact
        arithmetic; `plan_unlearning` of the new model includes rounding.

        Parameters
        ----------
        extra_steps : int, optional
            The number of extra steps of the later request; or a target instead.
        epsilon, delta : float, optional
            The target for the examples removed later.
        examples : int
            The number of examples removed later.

        Returns
        -------
        Unlearning
            The guarantee for the examples removed later.

        Raises
        ------
        InvalidParameter
            If no batch rule describes training and extra steps as one run.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun(
        ...     loss=li.Loss(smoothness=1.0, regulariser=0.1), sensitivity=1.0,
        ...     batches=li.FullBatch(examples=100), steps=50, step_size=1.0, noise_std=0.1)
        >>> li.unlearning(run, extra_steps=20).then(extra_steps=10).run.steps
        70
        """
        longer = self._as_one_run
        if not longer:
            must_be = "a batch rule under which extra steps continue the training"
            raise InvalidParameter("batches", self.run.batches.name, must_be=must_be)
        return unlearning(
            longer[0],
            extra_steps=extra_steps,
            epsilon=epsilon,
            delta=delta,
            examples=examples,
            order_kept=self.order_kept,
            batches=self.extra.batches,
            other_releases=self.other_releases,
        )

    @cached_property
    def _training_report(self) -> PrivacyReport:
        """The report on the training in exact arithmetic."""
        return account(self.run, other_releases=self.other_releases)

    def _as_computed(self, exact: PrivacyProfile) -> PrivacyProfile:
        """The guarantee of computed models, where the rounding of all of them is known."""
        rounding = self.report.rounding
        if rounding is None:
            return exact
        # No less than that of the training alone, or of the last model alone.
        if isinstance(exact, PrivacyReport):
            return exact.computed(rounding)
        return RoundedProfile(exact, rounding)

    @property
    def _as_one_run(self) -> list[TrainingRun]:
        if self.extra_steps == 0:
            return [self.run]
        return as_one_run(self.run, self.extra, order_kept=self.order_kept)

    def __repr__(self) -> str:
        epsilon = f"epsilon={up(self.epsilon(USUAL_DELTA))} at delta={USUAL_DELTA:g}"
        return f"Unlearning(extra_steps={self.extra_steps}, {epsilon}, examples={self.examples})"

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return card(
            repr(self),
            [
                ("extra steps", f"{self.extra_steps:,} after {self.run.steps:,}"),
                ("removed at once", f"{self.examples:,}"),
                ("bound", self.report.bound),
            ],
        )


def _in_open_order(run: TrainingRun) -> TrainingRun:
    return run.replace(releases="last-iterate-and-order")


def as_text(found: Unlearning, *, delta: float = USUAL_DELTA) -> str:
    """The guarantee for removed examples, its limits, the retained examples, and the cost."""
    steps, many = found.extra_steps, found.examples
    who = "1 example" if many == 1 else f"{many:,} examples at once"
    whom = "it" if many == 1 else "them"
    without = (
        "been left out of every gradient sum"
        if found.run.adjacency == "zero-out"
        else "been other examples from the start"
    )
    at = f"at delta = {delta:g}"
    one = if_one_example_is(found.run.adjacency)
    extra = "1 extra step" if steps == 1 else f"{steps:,} extra steps"
    unlearn = "unlearns" if steps == 1 else "unlearn"
    lines = [
        f"{extra} without {whom} {unlearn} {who}: epsilon = "
        f"{up(found.epsilon(delta))} {at}, certified by {found.report.bound_at(delta)}.",
        "",
        f"Guarantee: the new model is that close, in both directions, to the model that would have "
        f"been published had the removed examples {without}.",
        f"Not covered: someone who also holds the earlier model. Against that person a removed "
        f"example has the guarantee of the training: epsilon = "
        f"{up(found.before.epsilon(delta))} {one}.",
        "Not covered: requests for removal that depend on a published model.",
        f"Retained examples: epsilon = {up(found.retained.epsilon(delta))} for the new model "
        f"alone ({found.run.steps + steps:,} steps), and "
        f"{up(found.both_published.epsilon(delta))} for both models, {one}. A certificate states "
        "their guarantee under its own adjacency.",
        f"Cost: {100.0 * found.share_of_training:.3g} % of training again"
        + (_TRAIN_AGAIN if found.share_of_training >= 1.0 else "."),
        _EXACT if found.report.rounding is None else _ROUNDED,
    ]
    return "\n".join(lines)


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
            batches=_rule_of_steps(rule, 1),
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
        return self._step.replace(batches=_rule_of_steps(self._step.batches, steps), steps=steps)

    def as_release_noise(self, steps: int) -> float:
        """sqrt(W), rounded down."""
        if steps == 0:
            return self._first_release
        own = last_of(self._step.step_size) * last_of(self._step.noise_std)
        accumulated = own * math.sqrt(sum_of_inverse_powers(2.0 * self._log_c, steps))
        again = self._step.release_noise_std * inverse_power(self._log_c, steps)
        noise = math.hypot(self._first_release, accumulated, again)
        return min(down(noise, TENS_OF_THOUSANDS_OF_ROUNDINGS), _MAX_NOISE)

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


def _rule_of_steps(rule: BatchRule, steps: int) -> BatchRule:
    if not rule.exact_size:
        # Steps on batches of a fixed size contract without a doubt.
        return SampledWithoutReplacement(rule.examples, rule.batch_size)
    if rule.any_length:
        return rule
    return FixedOrder(rule.examples, rule.batch_size, positions=tuple(range(1, steps + 1)))


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
            farther = steps.steps_for_noise(
                _noise_times(steps, low, values[low] * (1.0 + rounds / 4.0))
            )
            many = MOST_STEPS if farther is None else min(max(farther, low + 1), MOST_STEPS)
        elif rounds % 5 == 0:
            many = (low + high) // 2
        else:
            many = min(max(_interpolate(steps, low, high, values), low + 1), high - 1)


def _noise_times(steps: ExtraSteps, many: int, more: float) -> float:
    """The release noise equivalent to `many` steps, times e^`more`."""
    factor = math.exp(min(max(more, -_MAX_LOGARITHM), _MAX_LOGARITHM))
    return min(steps.as_release_noise(max(many, 1)) * factor, _MAX_SEARCHED_NOISE)


def _interpolate(steps: ExtraSteps, low: int, high: int, values: dict[int, float]) -> int:
    """The steps at which a line through known log epsilons, by log noise, meets the target."""
    slope = 1.0
    first, last = (steps.as_release_noise(many) for many in (max(low, 0), high))
    if (
        low >= 0
        and 0.0 < first < last
        and values[low] < _MAX_LOGARITHM
        and values[high] > -_MAX_LOGARITHM
    ):
        slope = (values[low] - values[high]) / math.log(last / first)
    found = steps.steps_for_noise(_noise_times(steps, high, values[high] / slope))
    return high - 1 if found is None else found


def _log_ratio(value: float, target: float) -> float:
    if value == 0.0:
        return -math.inf
    return math.log(value / target) if value < math.inf else math.inf


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
        return [_extended_run(run, extra, rule)]
    alike = run.is_constant and (run.step_size, run.noise_std) == (extra.step_size, extra.noise_std)
    if not alike or (run.steps + extra.steps) // rule.batches_per_epoch > _MAX_LISTED_STEPS:
        return []
    # A participation that comes later is never less exposed: the latest positions of both orders.
    latest = _latest_positions(rule, run.steps)
    latest += [run.steps + step for step in _latest_positions(then, extra.steps)]
    order = FixedOrder(rule.examples, rule.batch_size, positions=tuple(latest))
    return [_extended_run(run, extra, order)]


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
    if total > _MAX_LISTED_STEPS:
        return None
    if rule.resampling is Resampling.NEVER:
        latest = list(range(total, 0, -rule.batches_per_epoch))[::-1]
    else:
        latest, begun = [], 0
        for steps in lengths:
            latest += [begun + step for step in _latest_positions(rule, steps)]
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


def _latest_positions(rule: BatchRule, steps: int) -> list[int]:
    """The last step of each epoch, counted from 1; of the last epoch, as far as it goes."""
    if not rule.any_length:
        return [int(step) + 1 for step in rule.participations(0, steps)]
    if rule.resampling is Resampling.EACH_STEP:
        return list(range(1, steps + 1))
    length = rule.batches_per_epoch
    ends = list(range(length, steps + 1, length))
    return ends if steps % length == 0 else [*ends, steps]


def _extended_run(run: TrainingRun, extra: TrainingRun, rule: BatchRule) -> TrainingRun:
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


def deletion_capacity(run: TrainingRun, *, epsilon: float, delta: float, share: float = 1.0) -> int:
    """The largest number of examples that can be unlearned at once within a share of the training.

    Parameters
    ----------
    run : TrainingRun
        The training.
    epsilon, delta : float
        The guarantee for the removed examples.
    share : float
        The largest acceptable number of extra steps, as a share of the steps of the training.

    Returns
    -------
    int
        The number of examples; 0 if not even one can be unlearned within the share.

    Raises
    ------
    InvalidParameter
        If a parameter is outside its range.

    Examples
    --------
    >>> import lastiterate as li
    >>> from lastiterate.unlearn.unlearning import deletion_capacity
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=0.26, regulariser=0.01), sensitivity=1.0,
    ...     batches=li.Cyclic(examples=10_000, batch_size=500), steps=800,
    ...     step_size=2.0, noise_std=0.01, adjacency="zero-out")
    >>> deletion_capacity(run, epsilon=1.0, delta=1e-5, share=0.2)
    56
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    require_plain_steps(run, "unlearning")
    target = _check.target_epsilon("epsilon", epsilon)
    delta = _check.number("delta", delta, above=0.0, below=1.0)
    part = _check.number("share", share, above=0.0, at_most=1.0)
    most = max(int(part * run.steps) - (part == 1.0), 0)

    def is_within_target(examples: int) -> bool:
        return unlearning(run, extra_steps=most, examples=examples).epsilon(delta) <= target

    return last_count_true(is_within_target, max(run.batches.examples - 1, 1))


def epsilon_by_extra_steps(
    run: TrainingRun,
    *,
    delta: float = 1e-5,
    examples: Sequence[int] = (1, 10, 100),
    steps: Sequence[int] | None = None,
) -> Figure:
    """A plot of epsilon after unlearning against extra steps, for several numbers of examples.

    Parameters
    ----------
    run : TrainingRun
        The training.
    delta : float
        The delta of the guarantee.
    examples : sequence of int
        The numbers of removed examples; each has a curve.
    steps : sequence of int, optional
        The numbers of extra steps; by default from 1 to the steps of the training.

    Returns
    -------
    matplotlib.figure.Figure
        The plot.
    """
    _check.number("delta", delta, above=0.0, below=1.0)
    if steps is None:
        steps = np.unique(np.geomspace(1, run.steps, _PLOTTED_STEPS).round().astype(int)).tolist()
    curves = {
        f"{many:,} {'example' if many == 1 else 'examples'}": [
            unlearning(run, extra_steps=one, examples=many).epsilon(delta) for one in steps
        ]
        for many in examples
    }
    return lines(
        steps,
        curves,
        across="extra steps",
        up=f"epsilon for removed examples at delta = {delta:g}",
    )
