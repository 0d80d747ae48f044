"""The guarantee of a model after unlearning, for those removed and for those who stay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lastiterate._digits import up
from lastiterate._html import card
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.adjacency import if_one_example_is
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.retained_examples import as_one_run


@dataclass(frozen=True, eq=False, repr=False)
class Unlearning(BestProfile):
    """The certified guarantee of a model after unlearning, as a profile for those unlearned.

    `extra` describes the extra steps, `forgotten` is the account that the guarantee is taken from,
    bound by bound.
    """

    run: TrainingRun
    extra: TrainingRun
    extra_steps: int
    examples: int
    order_kept: bool
    forgotten: PrivacyReport
    other_releases: tuple[Release, ...] = ()

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The profiles of the account that the guarantee is taken from."""
        return self.forgotten.profiles

    def epsilon(self, delta: float) -> float:
        """The epsilon of that account at this delta."""
        return self.forgotten.epsilon(delta)

    @property
    def share_of_training(self) -> float:
        """K/T: what forgetting costs against training again."""
        return self.extra_steps / self.run.steps

    @cached_property
    def remaining(self) -> PrivacyProfile:
        """The guarantee of the last model alone for those who stay, whom K more steps saw."""
        if self.extra_steps == 0:
            return self.before
        known = [account(longer, other_releases=self.other_releases) for longer in self._as_one_run]
        return BestProfile([self.both_published, *known])

    @cached_property
    def both_published(self) -> PrivacyProfile:
        """The guarantee for people who stay, against someone who holds both models.

        Those who were forgotten have `account(run)` against such a person: what came later did
        not see them.
        """
        if self.extra_steps == 0:
            return self.before
        first, then = self.before, self.extra
        if self.order_kept and self.run.batches.resampling is Resampling.ONCE:
            # One secret serves both, so that neither may be averaged over it alone.
            first = account(_in_open_order(self.run), other_releases=self.other_releases)
            then = _in_open_order(then)
        return first.compose(account(then).cheap())

    @cached_property
    def before(self) -> PrivacyReport:
        """The guarantee for everybody of the model that was published before the extra steps."""
        return account(self.run, other_releases=self.other_releases)

    def then(
        self,
        *,
        extra_steps: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        examples: int = 1,
    ) -> Unlearning:
        """The next request: others must go, whom the extra steps have seen as well.

        Those who went before are farther away with every step.
        """
        longer = self._as_one_run
        if not longer:
            must_be = "a batch rule under which extra steps go on as training did"
            raise InvalidParameter("batches", self.run.batches.name, must_be=must_be)
        from lastiterate.unlearn.unlearning_plan import unlearning  # which makes these results

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
                ("forgotten at once", f"{self.examples:,}"),
                ("bound", self.forgotten.bound),
            ],
        )

    def __str__(self) -> str:
        return as_text(self)


def _in_open_order(run: TrainingRun) -> TrainingRun:
    return run.replace(releases="last-iterate-and-order")


_TOO_MUCH = ": train again instead. A penalty (l2 = 0.01) at training makes unlearning cheaper."


def as_text(found: Unlearning, *, delta: float = USUAL_DELTA) -> str:
    """The promise, what it does not say, what others pay, and the cost."""
    steps, many = found.extra_steps, found.examples
    who = "1 example" if many == 1 else f"{many:,} examples at once"
    whom = "it" if many == 1 else "them"
    without = (
        "never been part of any sum"
        if found.run.adjacency == "zero-out"
        else "been others from the start"
    )
    at = f"at delta = {delta:g}"
    one = if_one_example_is(found.run.adjacency)
    taken = "1 extra step" if steps == 1 else f"{steps:,} extra steps"
    forget = "forgets" if steps == 1 else "forget"
    lines = [
        f"{taken} without {whom} {forget} {who}: epsilon = "
        f"{up(found.epsilon(delta))} {at}, certified by {found.forgotten.bound_at(delta)}.",
        "",
        f"Promised: what is published now is that close, in both directions, to what would have "
        f"been published had the removed {without}.",
        f"Not promised: anything against someone who holds the model from before, too. Against "
        f"that person each of the removed has what the training gave: epsilon = "
        f"{up(found.before.epsilon(delta))} {one}.",
        "Nor is it promised if the wish to be removed depends on a published model.",
        f"Those who stay have epsilon = {up(found.remaining.epsilon(delta))} of the new model "
        f"alone ({found.run.steps + steps:,} steps), and "
        f"{up(found.both_published.epsilon(delta))} of both models, {one}. A certificate says what "
        "they have under its own adjacency.",
        f"Cost: {100.0 * found.share_of_training:.3g} % of training again"
        + (_TOO_MUCH if found.share_of_training >= 1.0 else "."),
    ]
    return "\n".join(lines)
