"""The extra steps that unlearn examples of a published model, and their guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lastiterate import _check
from lastiterate._display import up
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.catalogue import given_order
from lastiterate.errors import InvalidParameter, InvalidType, UnreachableTarget
from lastiterate.other_releases import Release
from lastiterate.profile.compose_with_gaussian import compose_with_mixture
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.report_bounds import person_mu
from lastiterate.run.batch_rules.rules import BatchRule, Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.extra_steps import MOST_STEPS, ExtraSteps, last_of, least_extra_steps
from lastiterate.unlearn.unlearning_result import Unlearning


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
        report = account(self._with(self.steps.as_release_noise(many)), bounds=self._bounds)
        report = report.cheap() if cheaply or self._needs_whole_curves else report
        if not self.other_releases:
            return report
        more = GaussianMixtureProfile([1.0], [self._other_mu])
        every = {id_: compose_with_mixture(one, more) for id_, one in report.used.items()}
        return replace(report, all=every, other_releases=self.other_releases)

    @property
    def _other_mu(self) -> float:
        """The mu of the other releases, which stay published, for all of the examples."""
        return person_mu(self.other_releases, self._with(self.run.release_noise_std))

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

    def _with(self, release_noise: float) -> TrainingRun:
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
