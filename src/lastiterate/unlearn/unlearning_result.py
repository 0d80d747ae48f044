"""The guarantee of a model after unlearning, for removed and for retained examples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lastiterate._display import up
from lastiterate._html import card
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.privacy_profile import PrivacyProfile, Protected
from lastiterate.profile.rounded import RoundedProfile
from lastiterate.run.adjacency import if_one_example_is
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.retained_examples import as_one_run


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

    @property
    def share_of_training(self) -> float:
        """The extra steps as a share of the steps of the training."""
        return self.extra_steps / self.run.steps

    @cached_property
    def retained(self) -> PrivacyProfile:
        """The guarantee for retained examples against someone who holds the new model alone."""
        if self.extra_steps == 0:
            return self.before
        known = [account(longer, other_releases=self.other_releases) for longer in self._as_one_run]
        return BestProfile([self.both_published, *map(self._computed, known)])

    @cached_property
    def both_published(self) -> PrivacyProfile:
        """The guarantee for retained examples against someone who holds both models.

        For removed examples it is `before`, since the extra steps do not see them.
        """
        if self.extra_steps == 0:
            return self.before
        first, then = self._trained, self.extra
        if self.order_kept and self.run.batches.resampling is Resampling.ONCE:
            # One secret serves both, so that neither may be averaged over it alone.
            first = account(_in_open_order(self.run), other_releases=self.other_releases)
            then = _in_open_order(then)
        return self._computed(first.compose(account(then).cheap()))

    @cached_property
    def before(self) -> PrivacyProfile:
        """The guarantee, for all examples, of the model published before the extra steps."""
        return self._computed(self._trained)

    @cached_property
    def _trained(self) -> PrivacyReport:
        """The report on the training in exact arithmetic."""
        return account(self.run, other_releases=self.other_releases)

    def _computed(self, exact: PrivacyProfile) -> PrivacyProfile:
        """The guarantee of computed models, where the rounding of all of them is known."""
        rounding = self.report.rounding
        if rounding is None:
            return exact
        # No less than that of the training alone, or of the last model alone.
        if isinstance(exact, PrivacyReport):
            return exact.computed(rounding)
        return RoundedProfile(exact, rounding)

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
        from lastiterate.unlearn.unlearning_plan import unlearning

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

    @property
    def _as_one_run(self) -> list[TrainingRun]:
        if self.extra_steps == 0:
            return [self.run]
        return as_one_run(self.run, self.extra, order_kept=self.order_kept)

    def __repr__(self) -> str:
        epsilon = f"epsilon={up(self.epsilon(USUAL_DELTA))} at delta={USUAL_DELTA:g}"
        return f"Unlearning(extra_steps={self.extra_steps}, {epsilon}, examples={self.examples})"

    def _repr_html_(self) -> str:
        return card(
            repr(self),
            [
                ("extra steps", f"{self.extra_steps:,} after {self.run.steps:,}"),
                ("removed at once", f"{self.examples:,}"),
                ("bound", self.report.bound),
            ],
        )

    def __str__(self) -> str:
        return as_text(self)


def _in_open_order(run: TrainingRun) -> TrainingRun:
    return run.replace(releases="last-iterate-and-order")


_EXACT = "Arithmetic: exact. The rounding of floats is not included."
_ROUNDED = "Arithmetic: as computed. The rounding of training and extra steps is included."
_TOO_MUCH = ": train again instead. A penalty (l2 = 0.01) at training makes unlearning cheaper."


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
        + (_TOO_MUCH if found.share_of_training >= 1.0 else "."),
        _EXACT if found.report.rounding is None else _ROUNDED,
    ]
    return "\n".join(lines)
